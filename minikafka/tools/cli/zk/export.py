"""`zk export`: copy the data of minikafka's own ZooKeeper server for Apache ZooKeeper."""

from __future__ import annotations

import os
from collections.abc import Sequence

import click

from minikafka.tools.cli.terminal.echo import json_option, show
from minikafka.tools.cli.zk.copying import as_json, copy, data_in, lines


@click.command()
@click.argument("data", type=click.Path(exists=True, file_okay=False), metavar="DATA")
@click.argument("destination", type=click.Path(file_okay=False), metavar="DEST")
@json_option
def export(data: str, destination: str) -> None:
    """Copy the data of minikafka's ZooKeeper server to DEST, a dataDir for Apache ZooKeeper.

    DATA is the directory of `minikafka zookeeper`, or of `minikafka up`. Stop the server first. The copy is checked;
    DATA is not changed. For an ensemble, copy DEST to ALL members before the first start of any.
    """
    target = os.path.abspath(destination)
    copied = copy(data_in(data), None, target)
    show(
        as_json("export", data, destination, copied), [*lines(target, copied), *_next_steps(target)]
    )


def _next_steps(target: str) -> Sequence[str]:
    return (
        "Before Apache ZooKeeper starts on it:",
        f"- one server: set dataDir={target} in zoo.cfg; remove dataLogDir, or move the files log.* there",
        f"- an ensemble: copy {target} to the dataDir of ALL members before you start any of them. Members without",
        "  data could form a quorum, and the others would then drop these data. Each member needs its number in",
        "  dataDir/myid, and a line server.N=HOST:2888:3888 for each member in zoo.cfg.",
        "Clients open new sessions: Apache ZooKeeper does not know the passwords of the old ones. Sessions that were",
        "open, and their ephemeral nodes, end after their timeout.",
    )
