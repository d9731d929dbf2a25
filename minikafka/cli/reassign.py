"""`reassign`: move partitions to other brokers, and follow, look at, cancel or propose such moves (S1, K1–K3).

Exit code 0: every partition named ended where it should (or, with `--no-wait`, began to move); 1: one was
rejected, is elsewhere, or is not there yet; 130: Ctrl-C, after saying what completed. Ctrl-C never
cancels a reassignment: the controller goes on with it.
"""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Broker, BrokerId, ReplicaAssignment, TopicPartition
from minikafka.broker.assignments import assign
from minikafka.cli import plans, throttle
from minikafka.cli.plans import Plan
from minikafka.cli.progress import Progress
from minikafka.cli.reassignments import State, Verdict, count, ids, look, measure, wait
from minikafka.cli.target import (
    bootstrap_option,
    bootstrap_servers,
    data_option,
    fail_unless,
    json_option,
    run,
    target_options,
)
from minikafka.client import Client
from minikafka.client.admin import POLL_MS, Admin
from minikafka.runtime.clock import SystemClock, SystemRng

LAST_LOOK_S: Final = 5
"""After Ctrl-C the cluster has so long to say what completed."""
_SOON_MS: Final = 1_000
_ACTIONS: Final = ("verify", "list", "cancel", "generate")


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
            return plans.plan_file(self.file)
        if not self.partitions:
            raise click.UsageError(
                "name what to move: --topic t --partition 0 --replicas 1,2,3 (more than once if "
                "you like) or --file plan.json"
            )
        return plans.given_plan(self.topics, self.partitions, self.replicas)

    def named(self) -> list[TopicPartition]:
        """Partitions, whatever their replicas; none where only topics are named. Raises UsageError."""
        self._check_one_way()
        if self.file:
            return plans.partitions_file(self.file)
        if not self.topics:
            raise click.UsageError(
                "name what: --topic t --partition 0 (or all of --topic t), or --file plan.json"
            )
        return plans.given_partitions(self.topics, self.partitions) if self.partitions else []

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


@click.command()
@click.option("-t", "--topic", "topics", multiple=True, help="Topic of the --partition.")
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True)
@click.option("--replicas", multiple=True, metavar="3,4,5", help="Its brokers, preferred first.")
@click.option("--file", metavar="PLAN", help="A plan in the JSON of Kafka's reassignment tool.")
@click.option("--verify", is_flag=True, help="Say what became of the moves.")
@click.option("--list", "list_", is_flag=True, help="Show all moves under way.")
@click.option("--cancel", is_flag=True, help="Go back to the replicas of before.")
@click.option("--generate", is_flag=True, help="Propose a plan for --topics over --brokers.")
@click.option("--topics", "spread", metavar="A,B", help="With --generate: topics to spread.")
@click.option("--brokers", metavar="1,2,3", help="With --generate: brokers to use (default: all).")
@click.option(
    "--throttle",
    "bytes_per_second",
    type=click.IntRange(1),
    metavar="BYTES",
    help="Bytes/s a broker may spend on it; removed when all is completed.",
)
@click.option("--no-wait", is_flag=True, help="Return when the controller has accepted.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Wait no longer; the moves go on.",
)
@bootstrap_option
@data_option
@json_option
def reassign(
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    replicas: tuple[str, ...],
    file: str | None,
    verify: bool,
    list_: bool,
    cancel: bool,
    generate: bool,
    spread: str | None,
    brokers: str | None,
    bytes_per_second: int | None,
    no_wait: bool,
    timeout: float | None,
    bootstrap: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Move partitions to other brokers and wait until they are there.

    Ctrl-C says what is completed and leaves the rest running.
    """
    given = Given(
        topics,
        partitions,
        replicas,
        file,
        spread,
        brokers,
        bytes_per_second,
        not no_wait,
        timeout,
        as_json,
        target_options(bootstrap, data),
    )
    chosen = [
        name for name, on in zip(_ACTIONS, (verify, list_, cancel, generate), strict=True) if on
    ]
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} and --{chosen[1]} cannot go together")
    job = _job(chosen[0] if chosen else None, given)

    async def work(servers: str) -> bool:
        async with Client(servers) as client:
            return await job.do(client.admin)

    fail_unless(run(work(bootstrap_servers(bootstrap, data))))


def _job(action: str | None, given: Given) -> _Move | _Verify | _List | _Cancel | _Generate:
    """What to do, checked as far as it can be without the cluster. Raises UsageError."""
    if action != "generate" and (given.spread or given.brokers):
        raise click.UsageError("--topics and --brokers belong to --generate")
    if action and (given.throttle or given.timeout):
        raise click.UsageError(f"--throttle and --timeout do not go with --{action}")
    if action == "verify":
        return _Verify(given, given.plan() if given.replicas or given.file else given.named())
    if action == "list":
        return _List(given)
    if action == "cancel":
        return _Cancel(given, given.named())
    if action == "generate":
        if not given.spread:
            raise click.UsageError("--generate needs --topics a,b")
        names = list(dict.fromkeys(name.strip() for name in given.spread.split(",")))
        return _Generate(given, names, plans.broker_list(given.brokers) if given.brokers else None)
    return _Move(given, given.plan())


class _Move:
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
            click.echo(f"Current partition replica assignment\n\n{_dump(self._current)}\n")
            click.echo("Save this to use as the plan of --file when you want to go back.")
        if self._given.throttle:
            await self._throttle(admin, self._given.throttle)
        for tp, outcome in (await admin.alter_reassignments(self._plan)).items():
            if not outcome.ok:
                self._rejected[tp] = Verdict(self._plan[tp], State.REJECTED, error=outcome)

    async def _throttle(self, admin: Admin, bytes_per_second: int) -> None:
        missed = await throttle.put(admin, self._plan, self._current, bytes_per_second)
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
        """S1: the command is cancelled, so it checks whether the reassignment was completed and says so."""
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
            "current": plans.as_json(self._current),
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
        if self._given.throttle and await throttle.lift(admin, topics):
            click.echo("The throttle was removed.", err=True)

    def _tell_how(self) -> None:
        """How to come back to moves that go on."""
        click.echo(f"  to look again: {self._given.again('--verify')}", err=True)
        click.echo(f"  to cancel:     {self._given.again('--cancel')}", err=True)
        if self._given.throttle:
            click.echo("The throttle stays until --verify finds all completed.", err=True)


class _Verify:
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
        lifted = await throttle.lift(admin, {tp.topic for tp in plan})
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


class _List:
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


class _Cancel:
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
        while self._given.waits and cancelled and await admin.list_reassignments(cancelled):
            await self._clock.sleep(POLL_MS)
        await throttle.lift(admin, {tp.topic for tp in chosen})
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
        return len(cancelled) == len(outcomes)


class _Generate:
    """Propose a plan that spreads topics over brokers (R70), by racks where every broker has one."""

    def __init__(
        self, given: Given, topics: list[str], brokers: tuple[BrokerId, ...] | None
    ) -> None:
        self._given = given
        self._topics = topics
        self._brokers = brokers
        self._rng = SystemRng()

    async def do(self, admin: Admin) -> bool:
        """True. Raises KafkaError for topics and brokers that are not there."""
        known = await admin.describe_topics(self._topics)
        missing = [name for name in self._topics if name not in known]
        if missing:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ", ".join(missing))
        brokers = await self._usable(admin)
        current: Plan = {}
        proposed: Plan = {}
        for name in self._topics:
            partitions = known[name].partitions
            before = [partitions[number].replicas for number in sorted(partitions)]
            current |= {TopicPartition(name, at): replicas for at, replicas in enumerate(before)}
            spread = self._spread(name, brokers, len(before), len(before[0]))
            proposed |= {TopicPartition(name, at): replicas for at, replicas in spread.items()}
        if self._given.as_json:
            both = {"current": plans.as_json(current), "proposed": plans.as_json(proposed)}
            click.echo(json.dumps(both))
        else:
            click.echo(f"Current partition replica assignment\n{_dump(current)}\n")
            click.echo(f"Proposed partition reassignment configuration\n{_dump(proposed)}")
        return True

    async def _usable(self, admin: Admin) -> list[Broker]:
        nodes = (await admin.describe_cluster()).brokers
        wanted = nodes.keys() if self._brokers is None else set(self._brokers)
        missing = sorted(wanted - nodes.keys())
        if missing:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"no live broker {ids(missing)}")
        return [
            Broker(node.id, node.host, node.port, "", 0, rack=node.rack)
            for node in nodes.values()
            if node.id in wanted
        ]

    def _spread(
        self, topic: str, brokers: Sequence[Broker], partitions: int, factor: int
    ) -> dict[int, tuple[BrokerId, ...]]:
        if factor > len(brokers):
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{topic} has {factor} replicas, --brokers names only {len(brokers)}",
            )
        start, shift = (int(self._rng.uniform(0, len(brokers))) for _ in range(2))
        return assign(brokers, partitions, factor, start, shift)


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
        for name, info in (await admin.describe_topics(topics)).items():
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


def _dump(plan: Mapping[TopicPartition, Sequence[BrokerId]]) -> str:
    return json.dumps(plans.as_json(plan), separators=(",", ":"))
