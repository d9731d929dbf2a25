"""`trace`: the history of a partition or of a consumer group from the brokers' ledgers, grouped by cause; read-only.

The command works if the cluster is up or down: it reads the ledgers as files. Running brokers report the current
state. Exit code 1 if no broker and no ledger knows the partition or the group.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

import minikafka.broker.ledger.lifecycle as lifecycles
import minikafka.broker.rpc.messages as messages
import minikafka.tools.cluster.observation.state as cluster_state
import minikafka.tools.explain.gather as gathering
import minikafka.tools.explain.groups.evidence as group_evidence
import minikafka.tools.explain.groups.history as group_history
import minikafka.tools.explain.groups.words as group_words
import minikafka.tools.explain.summary as summaries
import minikafka.tools.explain.trace as tracing
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.arguments.options import connection_options, timeout_option
from minikafka.tools.cli.arguments.partition_arguments import partition_or_group
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.execution.sources import open_sources, print_unseen
from minikafka.tools.cli.terminal.echo import echo, json_option, show, wants_json
from minikafka.tools.cli.terminal.topic_errors import similar_group_at, similar_partition


@click.command()
@partition_or_group
@click.option(
    "--last",
    type=click.IntRange(1),
    metavar="N",
    help="Show only the last N events, or with --lifecycle the last N lines.",
)
@click.option(
    "--lifecycle",
    "as_lifecycle",
    is_flag=True,
    help="Show only state changes: requested, received, completed.",
)
@click.option(
    "-v", "--verbose", is_flag=True, help="Show all decisions, writes, requests and responses."
)
@connection_options
@timeout_option
@json_option
def trace(
    tp: TopicPartition | None,
    group: str | None,
    last: int | None,
    as_lifecycle: bool,
    verbose: bool,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Show what happened to TOPIC-PARTITION: failures, elections and ISR changes, and how long they took.

    With --group, show the rebalances of a consumer group: who or what caused each one, and how long its phases took.

    Reads the ledger files of all brokers, running or not. With --bootstrap, the brokers that answer send their ledgers.
    """
    if tp is None and as_lifecycle:
        raise click.UsageError("--lifecycle needs a partition; it cannot be combined with --group")
    run(_trace(tp, group or "", last, bootstrap, data, as_lifecycle=as_lifecycle, verbose=verbose))


async def _trace(
    tp: TopicPartition | None,
    group: str,
    last: int | None,
    bootstrap: str | None,
    data: str | None,
    *,
    as_lifecycle: bool,
    verbose: bool,
) -> None:
    async with open_sources(bootstrap, data) as sources:
        if tp is None:
            await _trace_group(sources, group, last, verbose)
        elif as_lifecycle:
            await _trace_lifecycle(sources, tp, last)
        else:
            await _trace_partition(sources, tp, last, verbose)


async def _trace_partition(
    sources: gathering.Sources, tp: TopicPartition, last: int | None, verbose: bool
) -> None:
    read_ms = sources.clock.wall_ms()
    lines = await sources.partition_lines(tp.topic)
    history = tracing.chains(lines, tp)
    state = await sources.state()
    if tp not in state.partitions and not any(tracing.names_number(line, tp) for line in lines):
        similar = similar_partition(sources.topics(), tp)
        raise click.ClickException(
            f"{tp} is unknown to every broker and ledger in {sources.place}{similar}"
        )
    story = summaries.Story(lines, tp)
    story.summarize(history)
    shown = [chain for chain in history if chain.summary or verbose or wants_json()]
    if last is not None:
        shown = shown[-last:]
    now, unseen = current_state(state, tp), await sources.unseen()

    def print_text() -> None:
        for chain in shown:
            _print_chain(chain, tp, verbose)
        has_all = isinstance(sources, gathering.LocalSources)
        for sentence in story.endings(read_ms, state.answers.keys(), has_every_ledger=has_all):
            echo(f"now: {sentence}")
        unknown = "unknown to every broker that answers" if state.answers else "no broker answers"
        echo(f"now: {_as_text(now) or unknown}")
        print_unseen(unseen)

    chains = [chain.as_json() for chain in shown]
    show({**now, "chains": chains, "unseen": unseen}, print_text)


def current_state(state: cluster_state.ClusterState, tp: TopicPartition) -> dict[str, Any]:
    """Return the partition's state, as reported by the brokers that answer. Unknown values are None."""
    view = state.partitions.get(tp)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "controller": state.controller,
        "leader": view.leader if view else None,
        "leader_epoch": view.leader_epoch if view else None,
        "isr": list(view.isr) if view else None,
        "backlog": cluster_state.backlog_of(state.answers.values()),
    }


def _as_text(now: dict[str, Any]) -> str:
    """Return the partition's current state as text; "" if the state is unknown."""
    if now["isr"] is None:
        return ""
    leader = "none" if now["leader"] is None else now["leader"]
    waiting = {broker: count for broker, count in now["backlog"].items() if count}
    backlog = "".join(f", {count} requests queued for broker {b}" for b, count in waiting.items())
    return f"leader {leader}, epoch {now['leader_epoch']}, ISR {tracing.ids(now['isr'])}{backlog}"


def _print_chain(chain: tracing.Chain, tp: TopicPartition, verbose: bool) -> None:
    echo(f"{chain.cause}  {clock_time(chain.time)}  {chain.summary or chain.title}")
    for line in chain.lines if verbose else ():
        place = f"{line['broker']}#{line['n']}"
        text = tracing.describe(tracing.only_about(line, tp))
        echo(f"    {clock_time(line['time'])[11:]}  {place:<8} {line['kind']:<9} {text}")


async def _trace_group(
    sources: gathering.Sources, group: str, last: int | None, verbose: bool
) -> None:
    entries = group_history.history(await sources.group_lines(group))
    answers = await sources.ask(messages.EXPLAIN_GROUP, {"group": group})
    now = group_evidence.GroupEvidence(group, sources.clock.wall_ms(), answers, entries)
    if not entries and now.report is None:
        similar = await similar_group_at(sources.access(), group)
        raise click.ClickException(
            f"group {group} is unknown to every broker and ledger in {sources.place}{similar}"
        )
    shown, unseen = entries[-last:] if last is not None else entries, await sources.unseen()

    def print_text() -> None:
        for entry in shown:
            _print_entry(entry, verbose)
        echo(f"now: {now.headline()}")
        print_unseen(unseen)

    found = [entry.as_json() for entry in shown]
    show({**now.as_json(), "entries": found, "unseen": unseen}, print_text)


def _print_entry(entry: group_history.HistoryEntry, verbose: bool) -> None:
    echo(f"{clock_time(entry.time)}  {entry.summary()}")
    for line in entry.lines if verbose and entry.is_rebalance else ():
        place = f"{line['broker']}#{line['n']}"
        echo(f"    {clock_time(line['time'])[11:]}  {place:<8} {group_words.describe(line)}")


def clock_time(wall_ms: int) -> str:
    """Return Unix milliseconds as text: date and time in UTC."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


async def _trace_lifecycle(
    sources: gathering.Sources, tp: TopicPartition, last: int | None
) -> None:
    stages = list(lifecycles.lifecycle(await sources.partition_lines(tp.topic), *tp))
    if not stages:
        raise click.ClickException(f"no ledger has a state change of {tp}")
    stages = stages[-last:] if last is not None else stages
    text = (f"{clock_time(stage.time)}  {stage.cause}  {stage}" for stage in stages)
    show([_as_json(stage) for stage in stages], text)


def _as_json(stage: lifecycles.Stage) -> dict[str, Any]:
    """Return the fields of a stage, and its line as `text`."""
    fields = asdict(stage)
    del fields["sentence"]
    return {**fields, "text": str(stage)}
