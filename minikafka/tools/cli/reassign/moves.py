"""Start moves, wait until they have ended, and print the result of each partition (K1–K3).

Invariant: a command that is interrupted or times out prints which moves have completed; the controller continues
the moves that it has begun.

With `--via-zookeeper` the request is written to `/admin/reassign_partitions`, like the tool of KAFKA-42, and in a
cluster without a controller to one node per partition below `/leaders/brokers/partitions_reassigned`. The same
command given again resumes the request of one that was killed, or that has left moves which had begun. If the command
is interrupted or times out, it takes back the moves that have not begun. If ZooKeeper does not answer, the request
stays in ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar, Final, Protocol

from minikafka.base.errors import CoordinationError, KafkaError
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.client.administration.admin import METADATA_LAG_MS, Admin
from minikafka.client.metadata import REFRESH_TIMEOUT_MS
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.arguments import placement
from minikafka.tools.cli.arguments.partition_arguments import Named
from minikafka.tools.cli.arguments.placement import Plan
from minikafka.tools.cli.execution.waiting import tell_causes
from minikafka.tools.cli.reassign import directories, throttle
from minikafka.tools.cli.reassign.jobs import ReassignOptions, current_replicas
from minikafka.tools.cli.reassign.outcome import (
    SHORT_PATIENCE_MS,
    MoveResult,
    MoveState,
    count,
    read_results,
    result_of,
    show_progress,
)
from minikafka.tools.cli.terminal.echo import echo, show, wants_json
from minikafka.tools.cli.terminal.progress import Amount, Progress
from minikafka.tools.cli.terminal.topic_errors import with_similar_topics
from minikafka.tools.cluster.zookeeper.access import ZooKeeperAccess
from minikafka.tools.cluster.zookeeper.reassign_node import OtherRequest, ReassignmentNode
from minikafka.tools.cluster.zookeeper.reassignments_by_leaders import (
    ReassignmentsByLeaders,
    reassignment_request,
)

LAST_CHECK_S: Final = 2 + 2 * REFRESH_TIMEOUT_MS // 1000
"""Time to report completed moves after Ctrl-C or the time limit: two brokers may hang before a third answers."""

Replicas = Mapping[TopicPartition, tuple[BrokerId, ...]]
Results = Mapping[TopicPartition, MoveResult]


class MoveVia(Protocol):
    """How moves are given to the controller, and how their state is read."""

    @property
    def started(self) -> str:
        """The first words of the line that names the accepted moves, with --no-wait."""

    @property
    def no_answer(self) -> str:
        """The sentence that is printed if the command ends early and cannot read the state of the moves."""

    async def replicas(self) -> Replicas:
        """Return the current replicas of the plan's partitions; unknown partitions are left out."""

    async def start(self, current: Replicas) -> Results:
        """Start the moves; return those that were rejected. `current`: the current replicas."""

    async def wait(self, plan: Plan) -> None:
        """Wait until no partition of the plan is being moved to its target."""

    async def results(self, plan: Plan, *, ends_early: bool) -> Results:
        """Return the state of the plan's moves. `ends_early`: the command no longer waits for their end."""

    async def end(self) -> None:
        """Clean up; called when none of the moves is in progress."""


class Move:
    """One call of `reassign` that moves partitions."""

    def __init__(self, options: ReassignOptions, plan: Plan, via: MoveVia) -> None:
        self._options = options
        self._plan = plan
        self._via = via
        self._has_started = False
        self._rejected: Results = {}
        self._current: Replicas = {}

    async def do(self) -> bool:
        """Move the partitions; return True if all moves have completed (with --no-wait: were accepted)."""
        timeout = self._options.timeout
        try:
            async with asyncio.timeout(timeout):
                await self._start()
                if self._options.waits:
                    await self._via.wait(self._accepted)
        except TimeoutError:
            echo(f"not completed within {timeout:g} s", err=True)
            return await self._end_early(interrupted=False)
        except asyncio.CancelledError:
            if task := asyncio.current_task():
                task.uncancel()  # let `_end_early` run; it has its own time limit
            echo("Interrupted.", err=True)
            await self._end_early(interrupted=True)
            raise
        if not self._options.waits:
            return await self._report_started()
        return await self._report(await self._via.results(self._accepted, ends_early=False))

    async def _start(self) -> None:
        self._current = await self._via.replicas()
        if self._current and not wants_json():
            echo("Current partition replica assignment", "", placement.as_text(self._current), "")
            echo("Save this as the PLAN of --file to return to it later.")
        self._rejected = await self._via.start(self._current)
        self._has_started = True

    @property
    def _accepted(self) -> Plan:
        return {tp: target for tp, target in self._plan.items() if tp not in self._rejected}

    async def _report_started(self) -> bool:
        accepted = self._accepted
        started = {tp: MoveResult(to, MoveState.IN_PROGRESS) for tp, to in accepted.items()}
        self._show({**started, **self._rejected}, is_started=True)
        if started:
            self._print_next_commands()
        else:
            await self._via.end()
        return not self._rejected

    async def _end_early(self, *, interrupted: bool) -> bool:
        """Print the state of all moves, within LAST_CHECK_S; return True if all moves have completed."""
        try:
            async with asyncio.timeout(LAST_CHECK_S):
                found = await self._via.results(self._accepted, ends_early=True)
                return await self._report(found, interrupted=interrupted, ends_early=True)
        except (TimeoutError, KafkaError, CoordinationError):
            echo(self._via.no_answer, err=True)
            if self._has_started:
                self._print_next_commands()
            return False

    async def _report(
        self, found: Results, *, interrupted: bool = False, ends_early: bool = False
    ) -> bool:
        results = {**found, **self._rejected}
        self._show(results, interrupted=interrupted)
        completed = count(results.values(), MoveState.COMPLETED)
        running = count(results.values(), MoveState.IN_PROGRESS)
        if ends_early:
            echo(
                f"{completed} of {len(results)} reassignments completed, "
                f"{running} still running: they continue.",
                err=True,
            )
        if running:
            self._print_next_commands()
        else:
            await self._via.end()
        return completed == len(results)

    def _show(
        self, results: Results, *, interrupted: bool = False, is_started: bool = False
    ) -> None:
        rows = sorted(results.items())
        completed = all(result.state is MoveState.COMPLETED for _, result in rows)
        shown = {
            "completed": completed,
            "interrupted": interrupted,
            "partitions": [result.as_json(tp) for tp, result in rows],
            "current": placement.as_json(self._current),
        }
        named = self._rejected if is_started else results
        lines = [result.sentence(tp) for tp, result in rows if tp in named]
        if is_started and self._accepted:
            lines.append(f"{self._via.started} {','.join(map(str, sorted(self._accepted)))}")
        show(shown, lines)

    def _print_next_commands(self) -> None:
        """Print the commands that verify or cancel the moves that are still running."""
        echo(f"  to verify: {self._options.command_for('--verify')}", err=True)
        echo(f"  to cancel: {self._options.command_for('--cancel')}", err=True)
        if self._options.throttle:
            echo("The throttle stays until --verify finds that all moves have completed.", err=True)


class MoveByController:
    """The job that moves partitions by requests to the controller."""

    def __init__(self, options: ReassignOptions, plan: Plan) -> None:
        self._options = options
        self._plan = plan

    async def do(self, admin: Admin) -> bool:
        """Do the job; return the result of `Move.do`."""
        via = _ViaController(admin, self._options, self._plan)
        return await Move(self._options, self._plan, via).do()


class _ViaController:
    """AlterPartitionReassignments requests, with a throttle if the options have one."""

    started: ClassVar[str] = "Successfully started partition reassignment for"
    no_answer: ClassVar[str] = (
        "The cluster does not answer, so completed moves are unknown; started moves continue."
    )

    def __init__(self, admin: Admin, options: ReassignOptions, plan: Plan) -> None:
        self._admin = admin
        self._options = options
        self._plan = plan
        self._directories = options.directories()

    async def replicas(self) -> Replicas:
        return await current_replicas(self._admin, self._plan)

    async def start(self, current: Replicas) -> Results:
        if rate := self._options.throttle:
            missed = await throttle.set_throttle(self._admin, self._plan, current, rate)
            for broker, outcome in missed.items():
                echo(f"broker {broker} is not throttled: {outcome}", err=True)
        if rate := self._options.log_dirs_throttle:
            brokers = {broker for _, broker in self._directories}
            await throttle.set_log_dirs_throttle(self._admin, brokers, rate)
        # First, so that brokers create new replicas in these directories.
        await directories.ask(self._admin, self._directories)
        outcomes = await self._admin.alter_reassignments(self._plan)
        shown = await with_similar_topics(self._admin, outcomes)
        await tell_causes(outcome.code for outcome in outcomes.values())
        return {
            tp: MoveResult(self._plan[tp], MoveState.REJECTED, current.get(tp, ()), outcome)
            for tp, outcome in shown.items()
            if not outcome.ok
        }

    async def wait(self, plan: Plan) -> None:
        clock = SystemClock()
        with Progress(clock, "partitions moved", shown=not wants_json()) as progress:
            await show_progress(self._admin, clock, plan, progress, self._options.target)
        named = {key: path for key, path in self._directories.items() if key[0] in plan}
        await directories.until_moved(self._admin, named, clock)

    async def results(self, plan: Plan, *, ends_early: bool) -> Results:
        if not plan:
            return {}
        patience_ms = SHORT_PATIENCE_MS if ends_early else METADATA_LAG_MS
        found = await read_results(self._admin, plan, patience_ms)
        return await directories.with_directories(self._admin, found, self._directories)

    async def end(self) -> None:
        if not (self._options.throttle or self._options.log_dirs_throttle):
            return
        if await throttle.remove_throttle(self._admin, {tp.topic for tp in self._plan}):
            echo("The throttle was removed.", err=True)
        elif await self._admin.list_reassignments():
            echo(
                "The throttle stays, as other partitions are still moving; to remove it afterwards:",
                f"  {self._options.command_for('--verify')}",
                err=True,
            )


async def move_by_node(
    options: ReassignOptions, plan: Plan, connect: str, access: ZooKeeperAccess
) -> bool:
    """Move partitions through the node at `connect` (host:port[/chroot]); return the result of `Move.do`.

    The refusal of a request names the command that cancels the moves in progress.
    """
    async with reassignment_request(connect, plan, SystemClock(), SystemRng(), access) as request:
        try:
            return await Move(options, plan, ViaNode(request)).do()
        except OtherRequest as error:
            if error.others:
                moving = options._replace(named=Named(tuple(error.others), ()), file=None)
                error.hint = f"to cancel: {moving.command_for('--cancel')}"
            raise


class ViaNode:
    """A MoveVia: a request in a node of ZooKeeper. A partition leaves the request when its move has ended."""

    def __init__(self, request: ReassignmentNode | ReassignmentsByLeaders) -> None:
        self._request = request
        self.started: Final = f"Asked {request.receiver} to reassign"
        self.no_answer: Final = (
            f"ZooKeeper does not answer, so the request stays in {request.place}"
        )

    async def replicas(self) -> Replicas:
        """Return the replicas in the topic nodes."""
        return {tp: found.replicas for tp, found in (await self._request.assignments()).items()}

    async def start(self, _: Replicas) -> Results:
        """Write the request, or resume that of an earlier command. Single partitions are refused later."""
        if not await self._request.submit():
            echo("This reassignment is already in progress: following it.", err=True)
        return {}

    async def wait(self, plan: Plan) -> None:
        """Show the progress until the whole plan has been removed."""
        with Progress(SystemClock(), "partitions moved", shown=not wants_json()) as progress:
            async for left in self._request.left():
                waiting = {str(tp): Amount(0, None) for tp in left}
                progress.update(waiting, len(plan) - len(left))

    async def results(self, plan: Plan, *, ends_early: bool) -> Results:
        """Return the state in the topic nodes; first take back what has not begun, at an early end."""
        if ends_early:
            for tp in await self._request.take_back():
                echo(f"{tp}: the request was taken back", err=True)
        found = await self._request.assignments()
        return {tp: result_of(target, found.get(tp)) for tp, target in plan.items()}

    async def end(self) -> None:
        """Do nothing: --via-zookeeper sets no throttle."""
