"""`configs delete`."""

from __future__ import annotations

import click

import minikafka.client.administration.results as administration
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.configs.resource import alter, resource_options


@click.command()
@resource_options
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@client_options
def delete(resource: administration.Resource, keys: tuple[str, ...]) -> None:
    """Remove the settings KEY..., so that the inherited or default values apply again."""
    alter(resource, dict.fromkeys(keys))
