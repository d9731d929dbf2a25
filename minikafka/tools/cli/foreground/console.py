"""`console`: serve a page on 127.0.0.1 that shows a cluster as it moves, in the foreground."""

from __future__ import annotations

import click
from click.core import ParameterSource

import minikafka.tools.cli.foreground.console_process as console_process
from minikafka.tools.cli.arguments.options import connection_options
from minikafka.tools.cli.lazy import import_at_once
from minikafka.tools.cli.terminal.echo import json_option


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    metavar="PORT",
    help="Port of the page.  [default: a free one]",
)
@click.option(
    "--replay",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="Play the ledgers in this folder, the data directory of a cluster that is gone or still runs.",
)
@click.option("--listening", type=int, metavar="FD", hidden=True, help="A socket that listens.")
@connection_options
@json_option
def console(
    port: int,
    replay: str | None,
    listening: int | None,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Serve the console of a cluster on 127.0.0.1 until Ctrl-C, and print its URL.

    The page shows brokers, partitions, groups, transactions and topics as they change, also while brokers or ZooKeeper
    are down, and runs commands after showing them. Only who knows the token in the URL can use it.

    With --data, the console also starts, pauses, stops and kills the processes of the cluster. With --bootstrap, it
    acts as the user of --command-config. Standard error has a line for each command that it runs.
    """
    import_at_once()
    if replay is not None:
        if (
            bootstrap
            or click.get_current_context().get_parameter_source("data")
            is ParameterSource.COMMANDLINE
        ):
            raise click.UsageError(
                "--replay reads files only: leave the options out that name a cluster"
            )
        console_process.play(port, replay)
        return
    console_process.serve(port, listening, bootstrap, data)
