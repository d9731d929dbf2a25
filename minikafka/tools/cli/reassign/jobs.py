"""The options of `reassign`, and the jobs that verify, list, cancel and propose moves (K1–K3).

A job is created from the options, which are checked as far as possible without the cluster. `do` returns
True on success.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import click

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError
from minikafka.base.model import Broker, BrokerId, ReplicaAssignment, TopicPartition
from minikafka.base.names import ids
from minikafka.client.administration.admin import Admin
from minikafka.client.administration.results import Outcome
from minikafka.tools.cli.arguments import placement
from minikafka.tools.cli.arguments.partition_arguments import Named
from minikafka.tools.cli.arguments.placement import Directories, Plan
from minikafka.tools.cli.execution.waiting import Blocked
from minikafka.tools.cli.reassign import directories, throttle
from minikafka.tools.cli.reassign.outcome import SHORT_PATIENCE_MS, MoveState, measure, read_results
from minikafka.tools.cli.reassign.spread import spread
from minikafka.tools.cli.terminal.echo import echo, show
from minikafka.tools.cli.terminal.progress import Amount
from minikafka.tools.cli.terminal.topic_errors import unknown_topics


class ReassignOptions(NamedTuple):
    """The options of `reassign`. `target`: the command-line options that name the cluster."""

    named: Named
    replicas: tuple[str, ...]
    file: str | None
    spread: str | None
    brokers: str | None
    throttle: int | None
    waits: bool
    timeout: float | None
    target: Sequence[str]
    log_dirs_throttle: int | None = None

    def plan(self) -> Plan:
        """Return the partitions that the options name, with their target replicas. Raises UsageError."""
        self._check_one_way()
        if self.file:
            return placement.plan_file(self.file)
        if not self.named.partitions:
            raise click.UsageError(
                "name the partitions to move: t-0 --replicas 1,2,3 (may be repeated), or --file plan.json"
            )
        return placement.given_plan(self.named.partitions, self.replicas)

    def directories(self) -> Directories:
        """Return the log directories that the plan names. Raises UsageError."""
        return placement.directories_file(self.file) if self.file else {}

    def named_partitions(self) -> list[TopicPartition]:
        """Return the partitions that the options name. Raises UsageError if there are none, or for invalid options."""
        self._check_one_way()
        if self.file:
            return placement.partitions_file(self.file)
        if not any(self.named):
            raise click.UsageError("name the partitions: t-0 (or --topic t), or --file plan.json")
        return list(self.named.partitions)

    def command_for(self, action: str) -> str:
        """Return the command line of `reassign` with another action for the same partitions and cluster."""
        words = ["minikafka", "reassign", action]
        if self.file:
            words += ["--file", self.file]
        words += [word for topic in self.named.topics for word in ("--topic", topic)]
        has_one_topic = len({tp.topic for tp in self.named.partitions}) == 1
        for at, tp in enumerate(self.named.partitions):
            if at == 0 or not has_one_topic:
                words += ["--topic", tp.topic]
            words += ["--partition", str(tp.partition)]
            if action == "--verify":
                words += ["--replicas", self.replicas[at]]
        return shlex.join([*words, *self.target])

    def _check_one_way(self) -> None:
        if self.file and (any(self.named) or self.replicas):
            raise click.UsageError("--file cannot be combined with partitions or --replicas")


class VerifyJob:
    """The job that prints whether moves have completed. It removes the throttle if no move is in progress."""

    def __init__(self, options: ReassignOptions, wanted: Plan | list[TopicPartition]) -> None:
        self._options = options
        self._wanted = wanted

    async def do(self, admin: Admin) -> bool:
        """Do the job; return True if all partitions have their target replicas."""
        plan = self._wanted
        if isinstance(plan, list):
            plan = await _current_targets(admin, self._options.named.topics, plan)
        results = await read_results(admin, plan, SHORT_PATIENCE_MS)
        results = await directories.with_directories(admin, results, self._options.directories())
        removed = await throttle.remove_throttle(admin, {tp.topic for tp in plan})
        rows = sorted(results.items())
        done = all(result.state is MoveState.COMPLETED for _, result in rows)
        partitions = [result.as_json(tp) for tp, result in rows]
        shown = {"completed": done, "partitions": partitions, "throttle_removed": removed}
        lines = ["Status of partition reassignment:", *(r.sentence(tp) for tp, r in rows)]
        show(shown, [*lines, "The throttle was removed."] if removed else lines)
        return done


class ListMoves:
    """The job that prints all moves in progress."""

    async def do(self, admin: Admin) -> bool:
        """Print the moves in progress and return True."""
        active = dict(sorted((await admin.list_reassignments()).items()))
        limited = await throttle.limits(admin, active) if active else {}
        amounts = await measure(admin, active, limited) if active else {}
        rows = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(moving.replicas),
                "adding": list(moving.adding),
                "removing": list(moving.removing),
                "bytes_done": amounts[str(tp)].done,
                "bytes_total": amounts[str(tp)].total,
            }
            for tp, moving in active.items()
        ]
        lines = [_move_text(tp, moving, amounts[str(tp)]) for tp, moving in active.items()]
        head = "Current partition reassignments:" if lines else "No partition is being reassigned."
        show({"reassignments": rows}, [head, *lines])
        return True


class Cancel:
    """The job that cancels moves, so that the partitions get their original replicas again."""

    def __init__(self, options: ReassignOptions, wanted: list[TopicPartition]) -> None:
        self._options = options
        self._wanted = wanted
        self._chosen: list[TopicPartition] = []
        self._outcomes: dict[TopicPartition, Outcome] = {}

    async def do(self, admin: Admin) -> bool:
        """Do the job; return True if all moves were cancelled and undone (with --no-wait: cancelled).

        The result is False if there was no move to cancel.
        """
        await directories.cancel(admin, self._options.directories())
        is_undone = await self._cancel_and_wait(admin)
        chosen, outcomes = self._chosen, self._outcomes
        await throttle.remove_throttle(admin, {tp.topic for tp in chosen})
        rows, lines = [], []
        for tp, outcome in sorted(outcomes.items()):
            row = {"topic": tp.topic, "partition": tp.partition, "cancelled": outcome.ok}
            error = None if outcome.ok else outcome.code.name
            rows.append({**row, "error": error, "message": None if outcome.ok else outcome.reason})
            end = "was cancelled." if outcome.ok else f"was not cancelled: {outcome}"
            lines.append(f"Reassignment of partition {tp} {end}")
        show({"partitions": rows}, lines or ["None of these partitions is being reassigned."])
        return bool(chosen) and all(outcome.ok for outcome in outcomes.values()) and is_undone

    async def _cancel_and_wait(self, admin: Admin) -> bool:
        """Cancel the moves and wait until all of them are undone; return True. With --no-wait, do not wait.

        After the timeout, raise MinikafkaError if the request to cancel the moves was sent but not answered;
        otherwise return False.
        """
        timeout = self._options.timeout
        try:
            async with asyncio.timeout(timeout):
                active = await admin.list_reassignments()
                topics = self._options.named.topics
                self._chosen = self._wanted or [tp for tp in active if tp.topic in topics]
                self._outcomes = await admin.alter_reassignments(dict.fromkeys(self._chosen))
                cancelled = [tp for tp, outcome in self._outcomes.items() if outcome.ok]
                blocked = Blocked()
                if self._options.waits:
                    async for active in admin.follow_reassignments(dict.fromkeys(cancelled)):
                        await blocked.tell(active)
        except TimeoutError:
            if self._chosen and not self._outcomes:
                raise MinikafkaError(f"the moves were not cancelled within {timeout:g} s") from None
            echo(f"the cancelled moves were not undone within {timeout:g} s", err=True)
            return False
        return True


async def current_replicas(
    admin: Admin, plan: Mapping[TopicPartition, Any]
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """Return the current replicas of these partitions; unknown partitions are left out."""
    known = await admin.describe_topics({tp.topic for tp in plan})
    return {
        tp: known[tp.topic].partitions[tp.partition].replicas
        for tp in plan
        if tp.topic in known and tp.partition in known[tp.topic].partitions
    }


async def _current_targets(
    admin: Admin, topics: Sequence[str], partitions: Sequence[TopicPartition]
) -> Plan:
    """Return the target replicas of `partitions`, or of all partitions of `topics` if `partitions` is empty.

    Without a reassignment in progress, the target is the current replicas.
    """
    wanted = dict.fromkeys(partitions)
    if not partitions:
        known = await admin.describe_topics(topics)
        missing = [name for name in topics if name not in known]
        if missing:
            raise unknown_topics(missing)
        for name, info in known.items():
            wanted |= dict.fromkeys(TopicPartition(name, number) for number in info.partitions)
    active = await admin.list_reassignments(wanted)
    current = await current_replicas(admin, wanted)
    return {tp: active[tp].target if tp in active else current.get(tp, ()) for tp in wanted}


def _move_text(tp: TopicPartition, moving: ReplicaAssignment, amount: Amount) -> str:
    text = f"{tp}: replicas: {ids(moving.replicas)}."
    if moving.adding:
        text += f" adding: {ids(moving.adding)}."
    if moving.removing:
        text += f" removing: {ids(moving.removing)}."
    return f"{text} {amount.percent} {amount.note}".rstrip()


class Propose:
    """The job that proposes a plan: topics evenly over brokers, and over racks if every broker has one."""

    def __init__(self, topics: Sequence[str] | None, brokers: tuple[BrokerId, ...] | None) -> None:
        self._topics = topics
        self._brokers = brokers

    async def do(self, admin: Admin) -> bool:
        """Print the proposal and return True. Raises KafkaError for unknown topics and brokers."""
        brokers = await self._live_brokers(admin)
        current = await self._current(admin)
        for tp, replicas in current.items():
            _check_factor(tp, len(replicas), len(brokers))
        proposed = {
            tp: tuple(replicas)
            for tp, replicas in spread(current, brokers).items()
            if tuple(replicas) != current[tp]
        }
        changed = {tp: current[tp] for tp in proposed}
        lines = ["Current partition replica assignment", placement.as_text(changed), ""]
        lines += ["Proposed partition reassignment configuration", placement.as_text(proposed)]
        both = {"current": placement.as_json(changed), "proposed": placement.as_json(proposed)}
        show(both, lines if proposed else ["No partition needs to move."])
        return True

    async def _current(self, admin: Admin) -> Plan:
        """Return the replicas of all partitions of the topics. Raises KafkaError."""
        known = {topic.name: topic for topic in (await admin.describe(self._topics))[1]}
        if missing := [name for name in self._topics or () if name not in known]:
            raise unknown_topics(missing)
        return {
            TopicPartition(name, number): partition.replicas
            for name, topic in known.items()
            for number, partition in sorted(topic.partitions.items())
        }

    async def _live_brokers(self, admin: Admin) -> list[Broker]:
        nodes = (await admin.describe_cluster()).brokers
        wanted = nodes.keys() if self._brokers is None else set(self._brokers)
        missing = sorted(wanted - nodes.keys())
        if missing:
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE, f"no live broker with id {ids(missing)}"
            )
        return [Broker(node.id, (), rack=node.rack) for node in nodes.values() if node.id in wanted]


def _check_factor(tp: TopicPartition, factor: int, brokers: int) -> None:
    if factor > brokers:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{tp} has {factor} replicas, but there are only {brokers} brokers to use",
        )
