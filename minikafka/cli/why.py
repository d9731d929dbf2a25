"""`why`: what keeps a partition, or one of its offsets, from being as it should be. Read only.

Exit code 0 when the question was answered, whatever the answer is (`healthy` in --json tells a program),
1 when it could not be (no such cluster, topic or partition), 2 for what cannot be understood.
"""

from __future__ import annotations

import json
from typing import Any

import click

from minikafka.base.model import NO_LEADER
from minikafka.cli.partitions import partition_named
from minikafka.cli.target import cluster, data_option, json_option, run
from minikafka.explain.gather import gather
from minikafka.explain.picture import Picture
from minikafka.explain.trace import ids
from minikafka.explain.why import Finding, explain
from minikafka.runtime.clock import SystemClock, SystemRng


@click.command()
@click.argument("partition", metavar="TOPIC-PARTITION")
@click.option("--offset", type=click.IntRange(0), help="Also: why is this offset not visible?")
@data_option
@json_option
def why(partition: str, offset: int | None, data: str | None, as_json: bool) -> None:
    """Tell why TOPIC-PARTITION is offline, under-replicated, not written to, not moved or not deleted.

    Each answer goes down to the broker that stands in the way, and names the events and lines of the ledger
    (EPOCH-NUMBER BROKER#LINE). Works on a dead cluster from the files that it left.
    """
    tp = partition_named(partition)
    picture = run(gather(cluster(data), tp, SystemClock(), SystemRng()))
    if not picture.is_known:
        deleted = "".join(f"; it was deleted [{event}]" for event in picture.past.deleted())
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
    """What `why --json` prints."""
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
            {broker for finding in found if finding.is_problem for broker in finding.blocking()}
        ),
        "findings": [finding.as_json() for finding in found],
    }


def _headline(picture: Picture) -> str:
    leader = "none" if picture.leader == NO_LEADER else picture.leader
    return (
        f"{picture.tp}: leader {leader}, epoch {picture.leader_epoch}, ISR {ids(picture.isr)}, "
        f"replicas {ids(picture.assignment.replicas)} (says {picture.source})"
    )


def _print(finding: Finding, depth: int) -> None:
    events = f"  [{', '.join(map(str, finding.events))}]" if finding.events else ""
    click.echo(f"{'  ' * depth}- {finding.text}{events}")
    for reason in finding.because:
        _print(reason, depth + 1)
