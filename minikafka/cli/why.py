"""`why`: explain what is wrong with a partition, or why one of its offsets is not visible; read-only.

Exit code 0 when there is an explanation, also for a healthy partition (`healthy` in --json tells them
apart); 1 when there is no such cluster, topic or partition; 2 for a usage error.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from minikafka.base.model import NO_LEADER, TopicPartition
from minikafka.cli.execution import run
from minikafka.cli.find_cluster import find_cluster
from minikafka.cli.options import data_option, json_option, timeout_option
from minikafka.cli.partition_arguments import partition_argument

if TYPE_CHECKING:
    from minikafka.explain.picture import Picture
    from minikafka.explain.why import Finding


@click.command()
@partition_argument
@click.option(
    "--offset",
    type=click.IntRange(0),
    metavar="N",
    help="Also explain why consumers cannot read this offset.",
)
@data_option
@timeout_option
@json_option
def why(tp: TopicPartition, offset: int | None, data: str | None, as_json: bool) -> None:
    """Explain why TOPIC-PARTITION is offline, under-replicated, not writable, not moved or not deleted.

    Each reason names the broker that causes it, and the events and lines in the ledgers that show it
    (EPOCH-NUMBER BROKER#LINE). Also works on the files of a cluster that is down.
    """
    from minikafka.explain.gather import gather
    from minikafka.explain.why import explain
    from minikafka.runtime.clock import SystemClock, SystemRng

    picture = run(gather(find_cluster(data), tp, SystemClock(), SystemRng()))
    if not picture.is_known:
        deleted = "".join(f"; it was deleted [{event}]" for event in picture.past.topic_deleted())
        raise click.ClickException(f"there is no partition {tp}{deleted}")
    found = explain(picture, offset)
    if as_json:
        click.echo(json.dumps(as_object(picture, found)))
        return
    click.echo(_headline(picture))
    for finding in found:
        _print(finding, 0)
    if not any(finding.is_problem for finding in found):
        click.echo(f"nothing is wrong with {tp}")


def as_object(picture: Picture, found: list[Finding]) -> dict[str, Any]:
    """Return the object of `why --json`."""
    return {
        "topic": picture.tp.topic,
        "partition": picture.tp.partition,
        "leader": None if picture.leader == NO_LEADER else picture.leader,
        "leader_epoch": picture.leader_epoch,
        "isr": list(picture.isr),
        "replicas": list(picture.assignment.replicas),
        "source": picture.source,
        "healthy": not any(finding.is_problem for finding in found),
        "blocking_brokers": sorted(
            {
                broker
                for finding in found
                if finding.is_problem
                for broker in finding.blocking_brokers()
            }
        ),
        "findings": [finding.as_json() for finding in found],
    }


def _headline(picture: Picture) -> str:
    from minikafka.explain.trace import ids

    leader = "none" if picture.leader == NO_LEADER else picture.leader
    return (
        f"{picture.tp}: leader {leader}, epoch {picture.leader_epoch}, ISR {ids(picture.isr)}, "
        f"replicas {ids(picture.assignment.replicas)} (source: {picture.source})"
    )


def _print(finding: Finding, depth: int) -> None:
    events = f"  [{', '.join(map(str, finding.events))}]" if finding.events else ""
    click.echo(f"{'  ' * depth}- {finding.text}{events}")
    for reason in finding.because:
        _print(reason, depth + 1)
