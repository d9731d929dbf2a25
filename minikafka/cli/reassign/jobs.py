"""The jobs of `reassign`: move partitions and wait; verify, list and cancel moves (K1–K3).

A job is created from the options, which are checked as far as possible without the cluster. `do` returns
True on success. Invariant: an interrupted `Move` prints which moves have completed, and the controller
continues the other moves.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from minikafka.base.errors import KafkaError, MinikafkaError
from minikafka.base.model import BrokerId, ReplicaAssignment, TopicPartition
from minikafka.cli.arguments import placement
from minikafka.cli.arguments.partition_arguments import Named
from minikafka.cli.arguments.placement import Plan
from minikafka.cli.execution.blocked import Blocked
from minikafka.cli.execution.waiting import tell_causes
from minikafka.cli.reassign import throttle
from minikafka.cli.reassign.outcome import (
    MoveResult,
    MoveState,
    count,
    ids,
    measure,
    print_results,
    read_results,
    wait_until_finished,
)
from minikafka.cli.terminal.echo import echo
from minikafka.cli.terminal.progress import Progress
from minikafka.cli.terminal.topic_errors import unknown_topics, with_similar_topics
from minikafka.client.admin import POLL_MS, Admin
from minikafka.client.admin_results import Outcome
from minikafka.client.metadata import REFRESH_TIMEOUT_MS
from minikafka.runtime.clock import SystemClock

LAST_CHECK_S: Final = 2 + 2 * REFRESH_TIMEOUT_MS // 1000
"""Time after Ctrl-C to report completed moves: two brokers may hang before a third broker answers."""
_SHORT_PATIENCE_MS: Final = 1_000


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
    as_json: bool
    target: Sequence[str]

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


class Move:
    """The job that starts moves, waits until all have ended, and prints the result of each move."""

    def __init__(self, options: ReassignOptions, plan: Plan) -> None:
        self._options = options
        self._plan = plan
        self._clock = SystemClock()
        self._has_started = False
        self._rejected: dict[TopicPartition, MoveResult] = {}
        self._current: dict[TopicPartition, tuple[BrokerId, ...]] = {}

    async def do(self, admin: Admin) -> bool:
        """Do the job; return True if all moves have completed (with --no-wait: were accepted)."""
        try:
            await self._start_and_follow(admin)
            if not self._options.waits:
                return await self._report_started(admin)
            results = await self._results(admin)
        except asyncio.CancelledError:
            await self._report_interrupted(admin)
            raise
        self._print_results(results, interrupted=False)
        return await self._finish(admin, results)

    async def _start_and_follow(self, admin: Admin) -> None:
        timeout = self._options.timeout
        try:
            async with asyncio.timeout(timeout):
                await self._start(admin)
                if self._options.waits:
                    await self._follow(admin)
        except TimeoutError:
            if not self._has_started:
                raise MinikafkaError(f"the moves were not accepted within {timeout:g} s") from None
            echo(f"not completed within {timeout:g} s", err=True)

    async def _start(self, admin: Admin) -> None:
        self._current = await _replicas(admin, self._plan)
        if self._current and not self._options.as_json:
            echo("Current partition replica assignment", "", placement.as_text(self._current), "")
            echo("Save this as the PLAN of --file to return to it later.")
        if self._options.throttle:
            await self._set_throttle(admin, self._options.throttle)
        outcomes = await admin.alter_reassignments(self._plan)
        for tp, outcome in (await with_similar_topics(admin, outcomes)).items():
            if not outcome.ok:
                replicas = self._current.get(tp, ())
                self._rejected[tp] = MoveResult(
                    self._plan[tp], MoveState.REJECTED, replicas, outcome
                )
        await tell_causes(outcome.code for outcome in outcomes.values())
        self._has_started = True

    async def _set_throttle(self, admin: Admin, bytes_per_second: int) -> None:
        missed = await throttle.set_throttle(admin, self._plan, self._current, bytes_per_second)
        for broker, outcome in missed.items():
            echo(f"broker {broker} is not throttled: {outcome}", err=True)

    @property
    def _accepted(self) -> Plan:
        return {tp: target for tp, target in self._plan.items() if tp not in self._rejected}

    async def _follow(self, admin: Admin) -> None:
        shown = not self._options.as_json
        with Progress(self._clock, "partitions moved", shown=shown) as progress:
            await wait_until_finished(admin, self._clock, self._accepted, progress)

    async def _results(self, admin: Admin, *patience: int) -> dict[TopicPartition, MoveResult]:
        found = await read_results(admin, self._accepted, *patience) if self._accepted else {}
        return {**found, **self._rejected}

    async def _report_started(self, admin: Admin) -> bool:
        started = {tp: MoveResult(t, MoveState.IN_PROGRESS) for tp, t in self._accepted.items()}
        if self._options.as_json:
            self._print_results({**started, **self._rejected}, interrupted=False)
        else:
            self._print_results(self._rejected, interrupted=False)
            if started:
                names = ",".join(map(str, sorted(started)))
                echo(f"Successfully started partition reassignment for {names}")
                self._print_next_commands()
        if not started:
            await self._remove_throttle(admin)
        return not self._rejected

    async def _report_interrupted(self, admin: Admin) -> None:
        """After Ctrl-C, print which moves have completed, and that the other moves continue."""
        task = asyncio.current_task()
        if task:
            task.uncancel()  # let the last requests run; they have their own time limit
        echo("Interrupted.", err=True)
        try:
            async with asyncio.timeout(LAST_CHECK_S):
                results = await self._results(admin, _SHORT_PATIENCE_MS)
        except (TimeoutError, KafkaError):
            echo(
                "The cluster does not answer, so completed moves are unknown; started moves continue.",
                err=True,
            )
            self._print_next_commands()
            return
        self._print_results(results, interrupted=True)
        completed = count(results.values(), MoveState.COMPLETED)
        running = count(results.values(), MoveState.IN_PROGRESS)
        echo(
            f"{completed} of {len(results)} reassignments completed, "
            f"{running} still running: the controller continues them.",
            err=True,
        )
        if running:
            self._print_next_commands()

    def _print_results(
        self, results: Mapping[TopicPartition, MoveResult], *, interrupted: bool
    ) -> None:
        as_json = self._options.as_json
        print_results(results, self._current, interrupted=interrupted, as_json=as_json)

    async def _finish(self, admin: Admin, results: Mapping[TopicPartition, MoveResult]) -> bool:
        if count(results.values(), MoveState.IN_PROGRESS):
            self._print_next_commands()
        else:
            await self._remove_throttle(admin)
        return count(results.values(), MoveState.COMPLETED) == len(results)

    async def _remove_throttle(self, admin: Admin) -> None:
        topics = {tp.topic for tp in self._plan}
        if not self._options.throttle:
            return
        if await throttle.remove_throttle(admin, topics):
            echo("The throttle was removed.", err=True)
        elif await admin.list_reassignments():
            echo(
                "The throttle stays, as other partitions are still moving; to remove it afterwards:",
                f"  {self._options.command_for('--verify')}",
                err=True,
            )

    def _print_next_commands(self) -> None:
        """Print the commands that verify or cancel the moves that are still running."""
        echo(f"  to verify: {self._options.command_for('--verify')}", err=True)
        echo(f"  to cancel: {self._options.command_for('--cancel')}", err=True)
        if self._options.throttle:
            echo("The throttle stays until --verify finds that all moves have completed.", err=True)


class Verify:
    """The job that prints whether moves have completed. It removes the throttle if no move is in progress."""

    def __init__(self, options: ReassignOptions, wanted: Plan | list[TopicPartition]) -> None:
        self._options = options
        self._wanted = wanted

    async def do(self, admin: Admin) -> bool:
        """Do the job; return True if all partitions have their target replicas."""
        plan = self._wanted
        if isinstance(plan, list):
            plan = await _current_targets(admin, self._options.named.topics, plan)
        results = await read_results(admin, plan, _SHORT_PATIENCE_MS)
        removed = await throttle.remove_throttle(admin, {tp.topic for tp in plan})
        rows = sorted(results.items())
        done = all(result.state is MoveState.COMPLETED for _, result in rows)
        if self._options.as_json:
            partitions = [result.as_json(tp) for tp, result in rows]
            shown = {"completed": done, "partitions": partitions, "throttle_removed": removed}
            echo(json.dumps(shown))
            return done
        echo("Status of partition reassignment:")
        for tp, result in rows:
            echo(result.sentence(tp))
        if removed:
            echo("The throttle was removed.")
        return done


class ListMoves:
    """The job that prints all moves in progress."""

    def __init__(self, options: ReassignOptions) -> None:
        self._options = options

    async def do(self, admin: Admin) -> bool:
        """Print the moves in progress and return True."""
        active = dict(sorted((await admin.list_reassignments()).items()))
        amounts = await measure(admin, active) if active else {}
        if self._options.as_json:
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
            echo(json.dumps({"reassignments": rows}))
            return True
        echo("Current partition reassignments:" if active else "No partition is being reassigned.")
        for tp, moving in active.items():
            amount = amounts[str(tp)]
            echo(f"{_move_text(tp, moving)} {amount.percent} {amount.note}".rstrip())
        return True


class Cancel:
    """The job that cancels moves, so that the partitions get their original replicas again."""

    def __init__(self, options: ReassignOptions, wanted: list[TopicPartition]) -> None:
        self._options = options
        self._wanted = wanted
        self._clock = SystemClock()
        self._chosen: list[TopicPartition] = []
        self._outcomes: dict[TopicPartition, Outcome] = {}

    async def do(self, admin: Admin) -> bool:
        """Do the job; return True if all moves were cancelled and undone (with --no-wait: cancelled).

        The result is False if there was no move to cancel.
        """
        is_undone = await self._cancel_and_wait(admin)
        chosen, outcomes = self._chosen, self._outcomes
        await throttle.remove_throttle(admin, {tp.topic for tp in chosen})
        if self._options.as_json:
            rows = [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "cancelled": outcome.ok,
                    "error": None if outcome.ok else outcome.code.name,
                    "message": None if outcome.ok else outcome.reason,
                }
                for tp, outcome in sorted(outcomes.items())
            ]
            echo(json.dumps({"partitions": rows}))
        elif not chosen:
            echo("None of these partitions is being reassigned.")
        else:
            for tp, outcome in sorted(outcomes.items()):
                end = "was cancelled." if outcome.ok else f"was not cancelled: {outcome}"
                echo(f"Reassignment of partition {tp} {end}")
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
                while self._options.waits and cancelled:
                    cancelled = list(await admin.list_reassignments(cancelled))
                    await blocked.tell(cancelled)
                    await self._clock.sleep(POLL_MS if cancelled else 0)
        except TimeoutError:
            if self._chosen and not self._outcomes:
                raise MinikafkaError(f"the moves were not cancelled within {timeout:g} s") from None
            echo(f"the cancelled moves were not undone within {timeout:g} s", err=True)
            return False
        return True


async def _replicas(
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
    admin: Admin,
    topics: Sequence[str],
    partitions: Sequence[TopicPartition],
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
    current = await _replicas(admin, wanted)
    return {tp: active[tp].target if tp in active else current.get(tp, ()) for tp in wanted}


def _move_text(tp: TopicPartition, moving: ReplicaAssignment) -> str:
    text = f"{tp}: replicas: {ids(moving.replicas)}."
    if moving.adding:
        text += f" adding: {ids(moving.adding)}."
    if moving.removing:
        text += f" removing: {ids(moving.removing)}."
    return text
