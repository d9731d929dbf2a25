"""One partition: its replicas, its history in the ledgers, and what `why` says about it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from minikafka.base.errors import KafkaError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.broker.ledger.record import STATE_CHANGE
from minikafka.broker.rpc.messages import EXPLAIN
from minikafka.tools.console.context import Asked, Console
from minikafka.tools.console.errors import unknown
from minikafka.tools.console.observation.grid import (
    EPOCH,
    HIGH_WATERMARK,
    ISR,
    LEADER,
    LOG_END,
    LOG_START,
    OFFLINE,
    REPLICAS,
    Row,
)
from minikafka.tools.console.observation.ledger_records import as_record
from minikafka.tools.console.observation.members import RUNNING
from minikafka.tools.explain.evidence import ReplicaFiles
from minikafka.tools.explain.finding import Finding
from minikafka.tools.explain.gather import gather
from minikafka.tools.explain.past import Past, became_leader
from minikafka.tools.explain.summary import Story
from minikafka.tools.explain.trace import Chain, Line, chains, only_about
from minikafka.tools.explain.why import explain

CHAINS_MAX: Final = 200
"""Maximum number of chains in one answer; the newest ones."""


async def show_partition(console: Console, asked: Asked) -> dict[str, Any]:
    """Return the replicas of a partition as each broker sees its own, and the partition's history.

    With `history=no` in the query, the history is left out.
    """
    tp = asked.partition
    await console.watch.ready()
    has_history = asked.query.get("history") != "no"
    answers, (lines, unseen, files) = await asyncio.gather(
        _ask_all(console, tp), _read_files(console, tp, has_history)
    )
    history = history_of(lines, tp) if has_history else {}
    reports = {id_: one["replica"] for id_, one in answers.items() if one["replica"] is not None}
    row = console.watch.grid.rows.get(str(tp))
    if row is None and not reports and not history.get("ledger"):
        raise unknown(f"partition {tp}")
    leader = max(
        (id_ for id_ in reports if reports[id_]["role"] == "leader"),
        key=lambda id_: reports[id_]["leader_epoch"],
        default=None,
    )
    newest = max(reports.values(), key=lambda one: one["leader_epoch"], default=None)
    if newest is None and row is not None:  # no broker tells more than its metadata
        reports = _seen_by_clients(row)
        leader, newest = row[LEADER], next(iter(reports.values()), None)
    ids = newest["replicas"] if newest else []
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "leader": leader,
        "leader_epoch": newest["leader_epoch"] if newest else None,
        "isr": newest["isr"] if newest else None,
        "replicas": [
            _replica(console, id_, reports.get(id_), reports.get(leader), files.get(id_))
            for id_ in dict.fromkeys([*ids, *sorted(reports)])
        ],
        **history,
        "to_ms": console.clock.wall_ms(),
        "unseen": [*unseen, *_unseen(console, ids)],
    }


def _seen_by_clients(row: Row) -> dict[int, Mapping[str, Any]]:
    """Return reports about the replicas that have only what a row of the grid says; the leader's has its offsets."""
    common = {"leader_epoch": row[EPOCH], "replicas": row[REPLICAS], "isr": row[ISR]}
    offsets = {
        "log_start_offset": row[LOG_START],
        "log_end_offset": row[LOG_END],
        "high_watermark": row[HIGH_WATERMARK],
    }
    return {
        id_: {**common, "role": "leader", **offsets}
        if id_ == row[LEADER]
        else {**common, "role": "offline" if id_ in row[OFFLINE] else "follower"}
        for id_ in row[REPLICAS]
    }


def history_of(lines: Sequence[Line], tp: TopicPartition) -> dict[str, Any]:
    """Return the newest chains of a partition, its leaderships, and when its history begins."""
    found = chains(lines, tp)
    Story(lines, tp).summarize(found)
    return {
        "ledger": [_chain(chain, tp) for chain in found[-CHAINS_MAX:]],
        "states": [*_states(lines, tp)],
        "from_ms": found[0].time if found else None,
    }


def _chain(chain: Chain, tp: TopicPartition) -> dict[str, Any]:
    """Return a chain with its lines as sentences about the partition, without the states of other partitions."""
    return {
        "cause": chain.cause,
        "time": chain.time,
        "title": chain.title,
        "summary": chain.summary,
        "lines": [as_record(only_about(line, tp)) for line in chain.lines],
    }


async def _ask_all(console: Console, tp: TopicPartition) -> dict[int, Mapping[str, Any]]:
    """Return the answers of all brokers that run to the question `explain`."""
    body = {"topic": tp.topic, "partition": tp.partition}

    async def ask(broker: int) -> Mapping[str, Any] | None:
        try:
            return await console.observed.ask(broker, EXPLAIN, body)
        except (OSError, KafkaError):
            return None

    ids = [id_ for id_, row in console.watch.brokers.items() if row.state == RUNNING]
    found = await asyncio.gather(*map(ask, ids))
    return {id_: one for id_, one in zip(ids, found, strict=True) if one is not None}


async def _read_files(
    console: Console, tp: TopicPartition, has_history: bool
) -> tuple[list[Line], list[str], dict[int, ReplicaFiles]]:
    """Return the ledger lines that may concern a topic, why they are missing, and what files tell of dead replicas."""
    away = [id_ for id_, row in console.watch.brokers.items() if row.state != RUNNING]
    if not (has_history or away):
        return [], [], {}
    try:
        async with console.observed.sources() as sources:
            found = {id_: sources.files(id_, tp) for id_ in away}
            files = {id_: one for id_, one in found.items() if one is not None}
            lines: list[Line] = []
            unseen: list[str] = []
            if has_history:
                lines += await sources.partition_lines(tp.topic)
                unseen = await sources.unseen()
    except (MinikafkaError, OSError) as error:
        return [], [f"the ledgers cannot be read: {error}"], {}
    return lines, unseen, files


def _unseen(console: Console, ids: list[int]) -> Iterator[str]:
    for id_ in ids:
        row = console.watch.brokers.get(id_)
        if row is None or row.state != RUNNING:
            reason = "it is not a broker of the cluster" if row is None else row.reason
            yield f"the replica of broker {id_}: {reason}"


def _replica(
    console: Console,
    broker: int,
    own: Mapping[str, Any] | None,
    leader: Mapping[str, Any] | None,
    files: ReplicaFiles | None,
) -> dict[str, Any]:
    """Return one replica.

    `own`: what its broker says about it. `leader`: what the leader says about its own. `files`: what the files of a
    broker that is away tell.
    """
    row = console.watch.brokers.get(broker)
    known = own or {}
    isr = (leader or known).get("isr", [])
    found = {
        "broker": broker,
        "state": row.state if row else "unknown",
        "role": known.get("role", "none"),
        "in_isr": broker in isr,
        "lag_ms": None,
        "log_start": known.get("log_start_offset"),
        "high_watermark": known.get("high_watermark"),
        "log_end": known.get("log_end_offset"),
        "last_stable": known.get("last_stable_offset"),
        "epochs": known.get("epochs", []),
        "open_transactions": known.get("open_transactions", []),
    }
    if found["log_end"] is None and files is not None:
        found["high_watermark"], found["log_end"] = files.high_watermark, files.log_end_offset
    for follower in (leader or {}).get("followers", ()):
        if follower["broker"] == broker:
            end = follower["log_end_offset"]
            is_behind = end is None or end < (leader or {})["log_end_offset"]
            found["lag_ms"] = follower["last_caught_up_ms"] if is_behind else 0
            if found["log_end"] is None:
                found["log_end"] = end
    return found


def _states(lines: Sequence[Line], tp: TopicPartition) -> Iterator[dict[str, Any]]:
    """Yield each leadership that was written to ZooKeeper, or begun by a leader in the mode leaders, oldest first."""
    written = Past(lines, tp).states
    for state in written:
        yield {
            "time_ms": state.line["time"],
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
        }
    if written:
        return
    moves = (line for line in lines if line["kind"] == STATE_CHANGE and line["fact"] == "move")
    for line in moves:
        if (line["topic"], line["partition"]) == tp and became_leader(line):
            yield {
                "time_ms": line["time"],
                "leader": line["broker"],
                "leader_epoch": line["epoch"],
                "isr": [],
            }


async def why_partition(console: Console, asked: Asked) -> dict[str, Any]:
    """Return what `minikafka why TOPIC-PARTITION` prints."""
    tp = asked.partition
    async with console.observed.sources() as sources:
        evidence = await gather(sources, tp)
        if not evidence.is_known:
            raise unknown(f"partition {tp}")
        found, unseen = explain(evidence, None), await sources.unseen()
    lines = explanation(evidence.headline(), found, f"nothing is wrong with {tp}", unseen)
    return {**lines, "command": console.command("why", str(tp))}


def explanation(
    headline: str, found: list[Finding], healthy: str, unseen: list[str]
) -> dict[str, Any]:
    """Return the lines that `why` prints, and whether they name no problem."""
    lines = [headline]
    for finding in found:
        lines += indented(finding, 0)
    is_healthy = not any(finding.is_problem for finding in found)
    if is_healthy:
        lines.append(healthy)
    lines += [f"not seen: {sentence}" for sentence in unseen]
    return {"lines": lines, "healthy": is_healthy}


def indented(finding: Finding, depth: int) -> Iterator[str]:
    """Yield the line of a finding, and below it those of its causes."""
    events = f"  [{', '.join(map(str, islice(finding.events, 5)))}]" if finding.events else ""
    yield f"{'  ' * depth}- {finding.text}{events}"
    for reason in finding.because:
        yield from indented(reason, depth + 1)
