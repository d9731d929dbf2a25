"""Moves of partitions: begun and followed to their end, looked at, listed, taken back (K1–K3).

Each job is made of what the command line says, checked as far as it can be without the cluster; `do` returns
whether all is as it should be. Invariant: a job that is cancelled says what completed and leaves the
moves to the controller.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from minikafka.base.errors import KafkaError
from minikafka.base.model import BrokerId, ReplicaAssignment, TopicPartition
from minikafka.cli import placement, reassign_throttle
from minikafka.cli.placement import Plan
from minikafka.cli.progress import Progress
from minikafka.cli.reassign_outcome import State, Verdict, count, ids, look, measure, wait
from minikafka.cli.topic_errors import unknown_topics
from minikafka.client.admin import POLL_MS, Admin
from minikafka.runtime.clock import SystemClock

LAST_LOOK_S: Final = 5
"""After Ctrl-C the cluster has so long to say what completed."""
_SOON_MS: Final = 1_000


class Given(NamedTuple):
    """What the command line says."""

    topics: tuple[str, ...]
    partitions: tuple[int, ...]
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
        """Partitions and the replicas they shall have. Raises UsageError."""
        self._check_one_way()
        if self.file:
            return placement.plan_file(self.file)
        if not self.partitions:
            raise click.UsageError(
                "name what to move: --topic t --partition 0 --replicas 1,2,3 (more than once if "
                "you like) or --file plan.json"
            )
        return placement.given_plan(self.topics, self.partitions, self.replicas)

    def named(self) -> list[TopicPartition]:
        """Partitions, whatever their replicas; none where only topics are named. Raises UsageError."""
        self._check_one_way()
        if self.file:
            return placement.partitions_file(self.file)
        if not self.topics:
            raise click.UsageError(
                "name what: --topic t --partition 0 (or all of --topic t), or --file plan.json"
            )
        return placement.given_partitions(self.topics, self.partitions) if self.partitions else []

    def again(self, action: str) -> str:
        """A command that does this with the same partitions of the same cluster."""
        words = ["minikafka", "reassign", action]
        if self.file:
            words += ["--file", self.file]
        for topic in self.topics if len(self.topics) == 1 else ():
            words += ["--topic", topic]
        for at, partition in enumerate(self.partitions):
            if len(self.topics) > 1:
                words += ["--topic", self.topics[at]]
            words += ["--partition", str(partition)]
            if action == "--verify":
                words += ["--replicas", self.replicas[at]]
        return shlex.join([*words, *self.target])

    def _check_one_way(self) -> None:
        if self.file and (self.topics or self.partitions or self.replicas):
            raise click.UsageError("give --file, or --topic and --partition, not both")


class Move:
    """Begin the moves, follow them, say what became of each."""

    def __init__(self, given: Given, plan: Plan) -> None:
        self._given = given
        self._plan = plan
        self._clock = SystemClock()
        self._rejected: dict[TopicPartition, Verdict] = {}
        self._current: dict[TopicPartition, tuple[BrokerId, ...]] = {}

    async def do(self, admin: Admin) -> bool:
        """Whether all completed (or began, if nobody waits)."""
        try:
            await self._begin(admin)
            if not self._given.waits:
                return await self._tell_begun(admin)
            await self._follow(admin)
            verdicts = await self._look(admin)
        except asyncio.CancelledError:
            await self._tell_interrupted(admin)
            raise
        self._tell(verdicts, interrupted=False)
        return await self._settle(admin, verdicts)

    async def _begin(self, admin: Admin) -> None:
        self._current = await _replicas(admin, self._plan)
        if self._current and not self._given.as_json:
            click.echo(
                f"Current partition replica assignment\n\n{placement.as_text(self._current)}\n"
            )
            click.echo("Save this to use as the plan of --file when you want to go back.")
        if self._given.throttle:
            await self._throttle(admin, self._given.throttle)
        for tp, outcome in (await admin.alter_reassignments(self._plan)).items():
            if not outcome.ok:
                replicas = self._current.get(tp, ())
                self._rejected[tp] = Verdict(self._plan[tp], State.REJECTED, replicas, outcome)

    async def _throttle(self, admin: Admin, bytes_per_second: int) -> None:
        missed = await reassign_throttle.put(admin, self._plan, self._current, bytes_per_second)
        for broker, outcome in missed.items():
            click.echo(f"broker {broker} is not throttled: {outcome}", err=True)

    @property
    def _accepted(self) -> Plan:
        return {tp: target for tp, target in self._plan.items() if tp not in self._rejected}

    async def _follow(self, admin: Admin) -> None:
        shown = not self._given.as_json
        with Progress(self._clock, "partitions moved", shown=shown) as progress:
            try:
                async with asyncio.timeout(self._given.timeout):
                    await wait(admin, self._clock, self._accepted, progress)
            except TimeoutError:
                click.echo(f"not completed within {self._given.timeout:g} s", err=True)

    async def _look(self, admin: Admin, *patience: int) -> dict[TopicPartition, Verdict]:
        found = await look(admin, self._accepted, *patience) if self._accepted else {}
        return {**found, **self._rejected}

    async def _tell_begun(self, admin: Admin) -> bool:
        begun = {tp: Verdict(t, State.IN_PROGRESS) for tp, t in self._accepted.items()}
        if self._given.as_json:
            self._tell({**begun, **self._rejected}, interrupted=False)
        else:
            self._tell(self._rejected, interrupted=False)
            if begun:
                names = ",".join(map(str, sorted(begun)))
                click.echo(f"Successfully started partition reassignment for {names}")
                self._tell_how()
        if not begun:
            await self._lift(admin)
        return not self._rejected

    async def _tell_interrupted(self, admin: Admin) -> None:
        """The command is cancelled, so it checks whether the reassignment was completed and says so."""
        task = asyncio.current_task()
        if task:
            task.uncancel()  # what follows has a time limit of its own
        click.echo("Interrupted.", err=True)
        try:
            async with asyncio.timeout(LAST_LOOK_S):
                verdicts = await self._look(admin, _SOON_MS)
        except (TimeoutError, KafkaError):
            click.echo("The cluster does not say what completed; what began goes on.", err=True)
            self._tell_how()
            return
        self._tell(verdicts, interrupted=True)
        completed = count(verdicts.values(), State.COMPLETED)
        going_on = count(verdicts.values(), State.IN_PROGRESS)
        click.echo(
            f"{completed} of {len(verdicts)} reassignments completed, "
            f"{going_on} still running: the controller goes on with them.",
            err=True,
        )
        if going_on:
            self._tell_how()

    def _tell(self, verdicts: Mapping[TopicPartition, Verdict], *, interrupted: bool) -> None:
        rows = sorted(verdicts.items())
        if not self._given.as_json:
            for tp, verdict in rows:
                click.echo(verdict.sentence(tp))
            return
        shown = {
            "completed": all(verdict.state is State.COMPLETED for _, verdict in rows),
            "interrupted": interrupted,
            "partitions": [verdict.as_json(tp) for tp, verdict in rows],
            "current": placement.as_json(self._current),
        }
        click.echo(json.dumps(shown))

    async def _settle(self, admin: Admin, verdicts: Mapping[TopicPartition, Verdict]) -> bool:
        if count(verdicts.values(), State.IN_PROGRESS):
            self._tell_how()
        else:
            await self._lift(admin)
        return count(verdicts.values(), State.COMPLETED) == len(verdicts)

    async def _lift(self, admin: Admin) -> None:
        topics = {tp.topic for tp in self._plan}
        if self._given.throttle and await reassign_throttle.lift(admin, topics):
            click.echo("The throttle was removed.", err=True)

    def _tell_how(self) -> None:
        """How to come back to moves that go on."""
        click.echo(f"  to look again: {self._given.again('--verify')}", err=True)
        click.echo(f"  to cancel:     {self._given.again('--cancel')}", err=True)
        if self._given.throttle:
            click.echo("The throttle stays until --verify finds all completed.", err=True)


class Verify:
    """Say what became of moves; the throttle goes when nothing moves any more."""

    def __init__(self, given: Given, wanted: Plan | list[TopicPartition]) -> None:
        self._given = given
        self._wanted = wanted

    async def do(self, admin: Admin) -> bool:
        """Whether all are where they should be."""
        plan = self._wanted
        if isinstance(plan, list):
            plan = await _as_they_are(admin, self._given.topics, plan)
        verdicts = await look(admin, plan, _SOON_MS)
        lifted = await reassign_throttle.lift(admin, {tp.topic for tp in plan})
        rows = sorted(verdicts.items())
        done = all(verdict.state is State.COMPLETED for _, verdict in rows)
        if self._given.as_json:
            partitions = [verdict.as_json(tp) for tp, verdict in rows]
            shown = {"completed": done, "partitions": partitions, "throttle_removed": lifted}
            click.echo(json.dumps(shown))
            return done
        click.echo("Status of partition reassignment:")
        for tp, verdict in rows:
            click.echo(verdict.sentence(tp))
        if lifted:
            click.echo("The throttle was removed.")
        return done


class ListMoves:
    """Show all that is under way."""

    def __init__(self, given: Given) -> None:
        self._given = given

    async def do(self, admin: Admin) -> bool:
        """True."""
        active = dict(sorted((await admin.list_reassignments()).items()))
        amounts = await measure(admin, active) if active else {}
        if self._given.as_json:
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
            click.echo(json.dumps({"reassignments": rows}))
            return True
        click.echo("Current partition reassignments:" if active else "Nothing is being reassigned.")
        for tp, moving in active.items():
            amount = amounts[str(tp)]
            click.echo(f"{_moving(tp, moving)} {amount.percent} {amount.note}".rstrip())
        return True


class Cancel:
    """Take moves back."""

    def __init__(self, given: Given, wanted: list[TopicPartition]) -> None:
        self._given = given
        self._wanted = wanted
        self._clock = SystemClock()

    async def do(self, admin: Admin) -> bool:
        """Whether all are back, or on their way back if nobody waits."""
        active = await admin.list_reassignments()
        chosen = self._wanted or [tp for tp in active if tp.topic in self._given.topics]
        outcomes = await admin.alter_reassignments(dict.fromkeys(chosen))
        cancelled = [tp for tp, outcome in outcomes.items() if outcome.ok]
        back = not self._given.waits or await self._wait(admin, cancelled)
        await reassign_throttle.lift(admin, {tp.topic for tp in chosen})
        if self._given.as_json:
            rows = [
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "cancelled": outcome.ok,
                    "error": None if outcome.ok else outcome.code.name,
                    "message": outcome.message,
                }
                for tp, outcome in sorted(outcomes.items())
            ]
            click.echo(json.dumps({"partitions": rows}))
        elif not chosen:
            click.echo("Nothing of it is being reassigned.")
        else:
            for tp, outcome in sorted(outcomes.items()):
                end = "was cancelled." if outcome.ok else f"was not cancelled: {outcome}"
                click.echo(f"Reassignment of partition {tp} {end}")
        return bool(chosen) and len(cancelled) == len(outcomes) and back

    async def _wait(self, admin: Admin, cancelled: list[TopicPartition]) -> bool:
        """Whether they are back in time."""
        try:
            async with asyncio.timeout(self._given.timeout):
                while cancelled and await admin.list_reassignments(cancelled):
                    await self._clock.sleep(POLL_MS)
        except TimeoutError:
            click.echo(f"not back within {self._given.timeout:g} s", err=True)
            return False
        return True


async def _replicas(
    admin: Admin, plan: Mapping[TopicPartition, Any]
) -> dict[TopicPartition, tuple[BrokerId, ...]]:
    """The replicas that these partitions have now, as far as they exist."""
    known = await admin.describe_topics({tp.topic for tp in plan})
    return {
        tp: known[tp.topic].partitions[tp.partition].replicas
        for tp in plan
        if tp.topic in known and tp.partition in known[tp.topic].partitions
    }


async def _as_they_are(
    admin: Admin,
    topics: Sequence[str],
    partitions: Sequence[TopicPartition],
) -> Plan:
    """Partitions (none: all of the topics) with the target of what moves them, or the replicas they have."""
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


def _moving(tp: TopicPartition, moving: ReplicaAssignment) -> str:
    text = f"{tp}: replicas: {ids(moving.replicas)}."
    if moving.adding:
        text += f" adding: {ids(moving.adding)}."
    if moving.removing:
        text += f" removing: {ids(moving.removing)}."
    return text
