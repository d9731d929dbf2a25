"""`configs set`.

A broker stores keys that it does not know, as Kafka does; a warning says that these keys have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable

import click

import minikafka.client.administration.results as administration
from minikafka.base.config import BrokerConfig
from minikafka.base.config.keys import unknown_key
from minikafka.base.config.security import PREFIX
from minikafka.base.config.throttles import THROTTLES
from minikafka.tools.cli.arguments.options import client_options, key_value_pairs
from minikafka.tools.cli.configs.resource import alter, resource_options
from minikafka.tools.cli.terminal.echo import echo


@click.command("set")
@resource_options
@click.argument(
    "settings", nargs=-1, required=True, metavar="KEY=VALUE...", callback=key_value_pairs
)
@client_options
def set_(resource: administration.Resource, settings: dict[str, str]) -> None:
    """Set each KEY to VALUE; if one is refused, none is changed."""
    alter(resource, settings)
    _warn_of_unknown(resource, settings)


def _warn_of_unknown(resource: administration.Resource, names: Iterable[str]) -> None:
    """Print a warning for each unknown key of a broker: the broker stores the key, but the key has no effect.

    Unknown keys of topics and of listeners need no warning, because they are refused.
    """
    if resource.type is not administration.ResourceType.BROKER:
        return
    known = [*BrokerConfig.keys(), *THROTTLES]
    for name in names:
        if name not in known and not name.startswith(PREFIX):
            stored = f"minikafka: warning: {name} is stored without effect"
            echo(f"{stored}: {unknown_key(name, known)}", err=True)
