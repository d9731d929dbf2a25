"""`why`: explain problems of a partition, why an offset is not visible, why a group makes no progress, or rights.

The command changes nothing. Exit code 0: there is an explanation, also for a healthy partition or group (see
`healthy` in --json). Exit code 1: the cluster, topic, partition or group does not exist. Exit code 2: usage error.
"""

from __future__ import annotations

import click

import minikafka.tools.explain.evidence as partition_evidence
import minikafka.tools.explain.finding as findings
import minikafka.tools.explain.gather as gathering
import minikafka.tools.explain.groups.evidence as group_evidence
import minikafka.tools.explain.groups.gather as group_gathering
import minikafka.tools.explain.groups.why as group_why
import minikafka.tools.explain.why as partition_why
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.arguments.options import data_option, timeout_option
from minikafka.tools.cli.arguments.partition_arguments import partition_or_group
from minikafka.tools.cli.diagnosis.why_principal import or_principal
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.execution.sources import open_sources, print_unseen
from minikafka.tools.cli.terminal.echo import echo, json_option, show
from minikafka.tools.cli.terminal.topic_errors import similar_group_at, similar_partition


@click.command()
@or_principal
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
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Explain why TOPIC-PARTITION is offline, under-replicated, not writable, not moved or not deleted.

    With --group, explain what blocks a consumer group: a member that does not rejoin, a rebalance loop, a
    partition without a live leader, a refused commit, lag that grows.

    With --principal, explain which ACL allows or denies operations on a resource to a user, or that none does.

    Each reason names the broker that causes it, and the events and lines in the ledgers that show it
    (EPOCH-NUMBER BROKER#LINE). Also works on the files of a cluster that is down.
    """
    if tp is None and offset is not None:
        raise click.UsageError("--offset needs a partition; it cannot be combined with --group")

    run(_explain(tp, group or "", offset, bootstrap, data))


async def _explain(
    tp: TopicPartition | None,
    group: str,
    offset: int | None,
    bootstrap: str | None,
    data: str | None,
) -> None:
    async with open_sources(bootstrap, data) as sources:
        if tp is None:
            await _explain_group(sources, group)
        else:
            await _explain_partition(sources, tp, offset)


async def _explain_partition(
    sources: gathering.Sources, tp: TopicPartition, offset: int | None
) -> None:
    evidence = await gathering.gather(sources, tp)
    if not evidence.has_sources and evidence.past.is_empty:
        raise _unknown(f"partition {tp}", evidence)
    if not evidence.is_known:
        deleted = "".join(f"; it was deleted [{event}]" for event in evidence.past.topic_deleted())
        similar = "" if deleted else similar_partition(sources.topics(), tp)
        raise click.ClickException(f"there is no partition {tp}{deleted}{similar}")
    unseen = await sources.unseen()
    _show(evidence, partition_why.explain(evidence, offset), f"nothing is wrong with {tp}", unseen)


async def _explain_group(sources: gathering.Sources, group: str) -> None:
    evidence = await group_gathering.gather_group(sources, group)
    if not evidence.has_sources and not evidence.is_known:
        raise _unknown(f"group {group}", evidence)
    if not evidence.is_known:
        similar = await similar_group_at(sources.access(), group)
        raise click.ClickException(f"there is no group {group}{similar}")
    healthy, unseen = f"group {group} has no problem", await sources.unseen()
    _show(evidence, group_why.explain_group(evidence), healthy, unseen)


def _unknown(
    subject: str, evidence: partition_evidence.PartitionEvidence | group_evidence.GroupEvidence
) -> click.ClickException:
    """Return the error if no broker answers and no ledger names the partition or group."""
    text = f"no broker answers, so it is not known whether there is a {subject}"
    causes = "; ".join(cause.sentence for cause in evidence.causes)
    return click.ClickException(f"{text}: {causes}")


def _show(
    evidence: partition_evidence.PartitionEvidence | group_evidence.GroupEvidence,
    found: list[findings.Finding],
    healthy: str,
    unseen: list[str],
) -> None:
    """Print the findings as JSON or text; the text is `healthy` if none of the findings is a problem."""

    def print_text() -> None:
        echo(evidence.headline())
        for finding in found:
            print_finding(finding, 0)
        if not any(finding.is_problem for finding in found):
            echo(healthy)
        print_unseen(unseen)

    causes = [cause.as_json() for cause in evidence.causes]
    result = {**evidence.as_json(), "causes": causes, **findings.as_json(found)}
    show({**result, "unseen": unseen}, print_text)


def print_finding(finding: findings.Finding, depth: int) -> None:
    """Print a finding, then its causes on the following lines, indented more than the finding."""
    events = f"  [{', '.join(map(str, finding.events))}]" if finding.events else ""
    echo(f"{'  ' * depth}- {finding.text}{events}")
    for reason in finding.because:
        print_finding(reason, depth + 1)
