"""`reassign --via-zookeeper`: write a request to `/admin/reassign_partitions`, like the tool of KAFKA-42.

Invariant: if the command is interrupted or times out, it takes back the moves that the controller has not begun,
and prints the state of every move. If ZooKeeper does not answer, the request stays in ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from minikafka.base.errors import CoordinationError
from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.cli.arguments import placement
from minikafka.cli.reassign.outcome import MoveResult, MoveState, count, print_results
from minikafka.cli.terminal.echo import echo

if TYPE_CHECKING:
    from minikafka.cli.reassign.jobs import ReassignOptions
    from minikafka.cluster.reassign_node import ReassignmentNode

TAKE_BACK_S = 5
"""Maximum time for taking back a request, after an interrupt or a timeout."""


class MoveByNode:
    """The job that moves partitions through the node `/admin/reassign_partitions`, and prints the results.

    The job writes the request to the node, then waits until the controller has removed the request.
    """

    def __init__(self, options: ReassignOptions) -> None:
        self._options = options
        self._plan = options.plan()

    async def do(self, connect: str) -> bool:
        """Move the partitions; return True if all partitions have their target replicas.

        With --no-wait, return True as soon as the request is written. `connect`: host:port[/chroot] of ZooKeeper.
        """
        from minikafka.cluster.reassign_node import reassignment_node
        from minikafka.runtime.clock import SystemClock, SystemRng

        node = reassignment_node(connect, self._plan, SystemClock(), SystemRng())
        async with node as request:
            return await self.move(request)

    async def move(self, request: ReassignmentNode) -> bool:
        """Move the partitions through the node `request`, with its open connection; return the result of `do`."""
        current = _replicas(await request.assignments())
        if not self._options.as_json:
            text = placement.as_text(current)
            echo("Current partition replica assignment", "", text, "")
        try:
            await request.submit()
            if not self._options.waits:
                names = ",".join(map(str, sorted(self._plan)))
                echo(f"Asked the controller to reassign {names}")
                return True
            async with asyncio.timeout(self._options.timeout):
                await request.finished()
        except TimeoutError:
            echo(f"not completed within {self._options.timeout:g} s", err=True)
            return await self._give_up(request, current)
        except asyncio.CancelledError:
            if task := asyncio.current_task():
                task.uncancel()  # let `_give_up` run; it has its own time limit
            echo("Interrupted.", err=True)
            await self._give_up(request, current)
            raise
        return await self._report(request, current, interrupted=False)

    async def _give_up(
        self,
        request: ReassignmentNode,
        current: Mapping[TopicPartition, tuple[int, ...]],
    ) -> bool:
        try:
            async with asyncio.timeout(TAKE_BACK_S):
                for tp in await request.take_back():
                    echo(f"{tp}: the request was taken back", err=True)
                return await self._report(request, current, interrupted=True)
        except (TimeoutError, CoordinationError) as error:
            echo(f"ZooKeeper does not answer, so the request stays in {_PATH}: {error}", err=True)
            return False

    async def _report(
        self,
        request: ReassignmentNode,
        current: Mapping[TopicPartition, tuple[int, ...]],
        *,
        interrupted: bool,
    ) -> bool:
        found = await request.assignments()
        results = {tp: _result(found.get(tp), target) for tp, target in self._plan.items()}
        print_results(results, current, interrupted=interrupted, as_json=self._options.as_json)
        if running := count(results.values(), MoveState.IN_PROGRESS):
            echo(
                f"{running} of {len(results)} reassignments still running: the controller continues them.",
                err=True,
            )
        return count(results.values(), MoveState.COMPLETED) == len(results)


_PATH = "/admin/reassign_partitions"


def _replicas(
    assignments: Mapping[TopicPartition, ReplicaAssignment],
) -> dict[TopicPartition, tuple[int, ...]]:
    return {tp: assignment.replicas for tp, assignment in assignments.items()}


def _result(found: ReplicaAssignment | None, target: tuple[int, ...]) -> MoveResult:
    if found is None:
        return MoveResult(target, MoveState.DIFFERENT)
    if found.target != target:
        return MoveResult(target, MoveState.DIFFERENT, found.target)
    state = MoveState.IN_PROGRESS if found.is_being_reassigned else MoveState.COMPLETED
    return MoveResult(target, state, found.replicas)
