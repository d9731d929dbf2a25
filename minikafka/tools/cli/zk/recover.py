"""`zk recover`: rebuild ZooKeeper's data from the log directories of the brokers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import minikafka.tools.cli.terminal.progress as displays
import minikafka.tools.cluster.directory as directories
import minikafka.tools.cluster.recovery.rebuild as rebuilding
from minikafka.base.model import topic_id_text
from minikafka.base.names import INTERNAL_TOPICS
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.find_cluster import data_directory, where_option
from minikafka.tools.cli.arguments.options import needs_machine, timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.terminal.echo import echo, json_option, show, wants_json

_VERSION = 1
"""Version of the JSON format."""


@click.command()
@needs_machine("reads the log directories")
@click.option(
    "--without",
    type=click.IntRange(0),
    multiple=True,
    metavar="ID",
    shell_complete=completion.brokers,
    help="Leave out a broker whose log directory is lost; records that only it has are lost. May be repeated.",
)
@timeout_option
@json_option
def recover(data: str | None, without: tuple[int, ...]) -> None:
    """Rebuild the data of a ZooKeeper that has lost them, from the log directories of all brokers.

    Stop the brokers first (minikafka down), and start them afterwards (minikafka up). Topics, partitions, topic ids,
    records, group offsets and transactions are kept; no acknowledged record is lost. What only ZooKeeper had is listed
    at the end: settings of topics and brokers, users, quotas, ACLs and delegation tokens, the order of replicas, and
    which topics were deleted.
    """
    directory = directories.ClusterDirectory(Path(data_directory(data)))
    rebuilt = _rebuild(directory, without)
    show(_as_json(rebuilt), lambda: _tell(rebuilt, where_option(data)))


def _rebuild(
    directory: directories.ClusterDirectory, without: tuple[int, ...]
) -> rebuilding.Rebuilt:
    clock = SystemClock()
    with displays.Progress(clock, "", shown=not wants_json()) as progress:

        def on_progress(step: str, done: int, total: int) -> None:
            progress.update({step: displays.Amount(done, total)})

        return run(rebuilding.rebuild(directory, without, clock, SystemRng(), on_progress))


def _as_json(rebuilt: rebuilding.Rebuilt) -> dict[str, Any]:
    topics = [
        {
            "name": topic.name,
            "topic_id": topic_id_text(topic.topic_id),
            "settings": dict(topic.settings),
            "partitions": [
                {
                    "partition": number,
                    "replicas": list(one.replicas),
                    "isr": list(one.isr),
                    "leader_epoch": one.epoch,
                    "is_lost": one.is_lost,
                }
                for number, one in sorted(topic.partitions.items())
            ],
        }
        for topic in rebuilt.topics
    ]
    return {
        "version": _VERSION,
        "cluster_id": rebuilt.cluster_id,
        "brokers": list(rebuilt.brokers),
        "without": list(rebuilt.without),
        "controller_epoch": rebuilt.controller_epoch,
        "next_producer_id": rebuilt.producer_id,
        "topics": topics,
    }


def _tell(rebuilt: rebuilding.Rebuilt, where: str) -> None:
    partitions = sum(len(topic.partitions) for topic in rebuilt.topics)
    behind = sum(
        len(one.isr) < len(one.replicas)
        for topic in rebuilt.topics
        for one in topic.partitions.values()
    )
    brokers = ", ".join(map(str, rebuilt.brokers))
    echo(f"cluster {rebuilt.cluster_id}: rebuilt from the log directories of brokers: {brokers}")
    if rebuilt.without:
        echo(f"left out: {', '.join(map(str, rebuilt.without))}")
    echo(f"{len(rebuilt.topics)} topics with {partitions} partitions")
    for topic in rebuilt.topics:
        if topic.name not in INTERNAL_TOPICS:
            echo(f"  {topic.name}: {len(topic.partitions)} partitions")
    echo(
        f"in sync are the replicas with the longest log; {behind} partitions have shorter ones, "
        "which copy the rest from their leader"
    )
    for line in (*_UNKNOWN, *_lost(rebuilt)):
        echo(f"- {line.format(where=where)}")
    echo(f"to start the cluster: minikafka up{where}")


def _lost(rebuilt: rebuilding.Rebuilt) -> Iterator[str]:
    """Yield lines about what is lost, in any case, and with the brokers that are left out."""
    if not rebuilt.without:
        yield "partitions above the highest one that has a log directory are lost; they had no records"
        return
    empty = ", ".join(
        f"{topic.name}-{number}"
        for topic in rebuilt.topics
        for number, one in topic.partitions.items()
        if one.is_lost
    )
    yield "records and topics that only a left-out broker had are lost" + (
        f"; created empty: {empty}" if empty else ""
    )
    yield (
        "a left-out broker deletes what is left of its replicas when it starts: move its log directory elsewhere "
        "first if you want to keep them"
    )


_UNKNOWN = (
    "settings of topics are lost. Retention is off for each of them, so that no record is deleted, until you set "
    "them: minikafka configs set KEY=VALUE --topic T{where}, minikafka configs delete retention.ms retention.bytes "
    "--topic T{where}. Topics that were compacted are compacted again",
    "settings that were changed at run time for brokers are lost: minikafka configs describe --brokers-default{where}",
    "users with SCRAM, quotas, ACLs and delegation tokens are lost. Until you make them again, these users cannot "
    "log in, and with an authorizer only super.users have rights, or everyone with allow.everyone.if.no.acl.found: "
    "minikafka users add USER{where}, minikafka acls add{where}, minikafka quotas set{where}. If brokers log in with "
    "SCRAM, make their user before they start: kafka-configs.sh --zookeeper",
    "the order of replicas is new, and with it the preferred leaders",
    "moves and deletions that were in progress are forgotten: each broker with a log of a partition is a replica, and "
    "a topic that was deleted while a broker was down may be back: minikafka topics delete T{where}",
    "leader epochs, the controller epoch and producer ids continue far above the highest ones that were found",
)
"""What ZooKeeper alone knew, with the command that restores it."""
