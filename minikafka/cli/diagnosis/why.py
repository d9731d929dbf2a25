"""`why`: explain problems of a partition, why an offset is not visible, or why a group makes no progress.

The command changes nothing. Exit code 0: there is an explanation, also for a healthy partition or group (see
`healthy` in --json). Exit code 1: the cluster, topic, partition or group does not exist. Exit code 2: usage error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from minikafka.base.model import NO_LEADER, TopicPartition
from minikafka.cli.arguments.find_cluster import find_cluster, where_option
from minikafka.cli.arguments.options import data_option, timeout_option
from minikafka.cli.arguments.partition_arguments import partition_or_group
from minikafka.cli.arguments.similar import similar_local_group, similar_partition
from minikafka.cli.execution.running import run
from minikafka.cli.terminal.echo import echo
from minikafka.cli.terminal.result import json_option, show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from minikafka.cluster.causes import Cause
    from minikafka.explain.picture import Picture
    from minikafka.explain.why import Finding


@click.command()
@partition_or_group
@click.option(
    "--offset",
    type=click.IntRange(0),
    metavar="N",
    help="Also explain why consumers cannot read this offset.",
)
@data_option
@timeout_option
@json_option
def why(
    tp: TopicPartition | None,
    group: str | None,
    offset: int | None,
    data: str | None,
) -> None:
    """Explain why TOPIC-PARTITION is offline, under-replicated, not writable, not moved or not deleted.

    With --group, explain what blocks a consumer group: a member that does not rejoin, a rebalance loop, a
    partition without a live leader, a refused commit, lag that grows.

    Each reason names the broker that causes it, and the events and lines in the ledgers that show it
    (EPOCH-NUMBER BROKER#LINE). Also works on the files of a cluster that is down.
    """
    if tp is None:
        if offset is not None:
            raise click.UsageError("--offset needs a partition; it cannot be combined with --group")
        explain_group_of(data, group or "")
        return
    from minikafka.explain.gather import gather
    from minikafka.explain.why import explain
    from minikafka.runtime.clock import SystemClock, SystemRng

    where = where_option(data)
    picture = run(gather(find_cluster(data), tp, SystemClock(), SystemRng(), where))
    if not picture.has_sources and picture.past.is_empty:
        raise _unknown(f"partition {tp}", picture.causes)
    if not picture.is_known:
        deleted = "".join(f"; it was deleted [{event}]" for event in picture.past.topic_deleted())
        similar = "" if deleted else similar_partition(find_cluster(data), tp)
        raise click.ClickException(f"there is no partition {tp}{deleted}{similar}")
    found = explain(picture, offset)
    healthy = f"nothing is wrong with {tp}"
    show(as_object(picture, found), lambda: _print(_headline(picture), found, healthy))


def _print(headline: str, found: list[Finding], healthy: str) -> None:
    """Print the findings; `healthy` if none of them is a problem."""
    echo(headline)
    for finding in found:
        print_finding(finding, 0)
    if not any(finding.is_problem for finding in found):
        echo(healthy)


def _unknown(subject: str, causes: Sequence[Cause]) -> click.ClickException:
    """Return the error if no broker answers and no ledger names the partition or group."""
    text = f"no broker answers, so it is not known whether there is a {subject}"
    return click.ClickException(": ".join([text, "; ".join(cause.sentence for cause in causes)]))


def as_object(picture: Picture, found: list[Finding]) -> dict[str, Any]:
    """Return the JSON object of `why` for a partition."""
    return {
        "topic": picture.tp.topic,
        "partition": picture.tp.partition,
        "leader": None if picture.leader == NO_LEADER else picture.leader,
        "leader_epoch": picture.leader_epoch,
        "isr": list(picture.isr),
        "replicas": list(picture.assignment.replicas),
        "source": picture.source,
        "causes": [cause.as_json() for cause in picture.causes],
        **findings_as_json(found),
    }


def findings_as_json(found: list[Finding]) -> dict[str, Any]:
    """Return the fields of the JSON object of `why` that are the same for partitions and groups."""
    problems = [finding for finding in found if finding.is_problem]
    return {
        "healthy": not problems,
        "blocking_brokers": sorted({b for finding in problems for b in finding.blocking_brokers()}),
        "findings": [finding.as_json() for finding in found],
    }


def explain_group_of(data: str | None, group: str) -> None:
    """Print why a consumer group makes no progress."""
    from minikafka.explain.groups.gather import gather_group
    from minikafka.explain.groups.why import explain_group
    from minikafka.runtime.clock import SystemClock, SystemRng

    where = where_option(data)
    picture = run(gather_group(find_cluster(data), group, SystemClock(), SystemRng(), where))
    if not picture.is_known and not picture.answers:
        raise _unknown(f"group {group}", picture.causes)
    if not picture.is_known:
        similar = run(similar_local_group(find_cluster(data), group))
        raise click.ClickException(f"there is no group {group}{similar}")
    found = explain_group(picture)
    causes = [cause.as_json() for cause in picture.causes]
    show(
        {**picture.as_json(), **findings_as_json(found), "causes": causes},
        lambda: _print(picture.headline(), found, f"group {group} has no problem"),
    )


def _headline(picture: Picture) -> str:
    from minikafka.explain.trace import ids

    leader = "none" if picture.leader == NO_LEADER else picture.leader
    return (
        f"{picture.tp}: leader {leader}, epoch {picture.leader_epoch}, ISR {ids(picture.isr)}, "
        f"replicas {ids(picture.assignment.replicas)} (source: {picture.source})"
    )


def print_finding(finding: Finding, depth: int) -> None:
    """Print a finding, then its causes on the following lines, indented more than the finding."""
    events = f"  [{', '.join(map(str, finding.events))}]" if finding.events else ""
    echo(f"{'  ' * depth}- {finding.text}{events}")
    for reason in finding.because:
        print_finding(reason, depth + 1)
