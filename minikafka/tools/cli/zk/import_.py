"""`zk import`: copy the data of an Apache ZooKeeper server for minikafka's own server."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from minikafka.tools.cli.terminal.echo import json_option, show
from minikafka.tools.cli.zk.copying import as_json, copy, data_in, lines


@click.command("import")
@click.argument("source", type=click.Path(exists=True, file_okay=False), metavar="SOURCE")
@click.argument("data", type=click.Path(file_okay=False), metavar="DATA")
@click.option(
    "--log-dir",
    type=click.Path(exists=True, file_okay=False),
    metavar="DIR",
    help="The directory of the logs, if zoo.cfg sets dataLogDir.",
)
@json_option
def import_(source: str, data: str, log_dir: str | None) -> None:
    """Copy SOURCE, the dataDir of an Apache ZooKeeper server, to DATA, for minikafka's server.

    DATA is a directory for `minikafka zookeeper`; for `minikafka up --data DIR`, it is DIR/zookeeper/data. SOURCE may
    be the dataDir of any one member of an ensemble: take the member with the highest zxid. Stop all members first. The
    copy is checked; SOURCE is not changed.
    """
    target = os.path.abspath(data)
    copied = copy(data_in(source), log_dir and os.path.abspath(log_dir), target)
    show(as_json("import", source, data, copied), [*lines(target, copied), *_next_steps(target)])


def _next_steps(target: str) -> Sequence[str]:
    return (
        f"Start the server with: minikafka zookeeper --data {target} --port 2181",
        "Clients open new sessions: the passwords of the old ones are not valid here. Sessions that were open, and",
        "their ephemeral nodes, end after their timeout.",
    )
