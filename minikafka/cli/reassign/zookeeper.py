"""`reassign --via-zookeeper`: write a request to `/admin/reassign_partitions`, like the tool of KAFKA-42.

In a cluster without a controller, write one node per partition below `/leaders/brokers/partitions_reassigned` instead.
The same command given again resumes the request of one that was killed, or that has left moves which had begun.
Invariant: if the command is interrupted or times out, it takes back the moves that the controller (or no leader) has
not begun, and prints the state of every move. If ZooKeeper does not answer, the request stays in ZooKeeper.
"""

from __future__ import annotations

from typing import Final

from minikafka.cli.arguments.partition_arguments import Named
from minikafka.cli.arguments.placement import Plan
from minikafka.cli.reassign.jobs import ReassignOptions
from minikafka.cli.reassign.moves import Move, Replicas, Results
from minikafka.cli.reassign.outcome import result_of
from minikafka.cli.terminal.echo import echo
from minikafka.cli.terminal.progress import Amount, Progress
from minikafka.cli.terminal.result import wants_json
from minikafka.cluster.reassign_node import OtherRequest, ReassignmentNode
from minikafka.cluster.reassignments_by_leaders import (
    ReassignmentsByLeaders,
    reassignment_request,
)
from minikafka.runtime.clock import SystemClock, SystemRng


async def move_by_node(options: ReassignOptions, plan: Plan, connect: str) -> bool:
    """Move partitions through the node at `connect` (host:port[/chroot]); return the result of `Move.do`.

    The refusal of a request names the command that cancels the moves in progress.
    """
    async with reassignment_request(connect, plan, SystemClock(), SystemRng()) as request:
        try:
            return await Move(options, plan, ViaNode(request)).do()
        except OtherRequest as error:
            if error.others:
                moving = options._replace(named=Named(tuple(error.others), ()), file=None)
                error.hint = f"to cancel: {moving.command_for('--cancel')}"
            raise


class ViaNode:
    """A MoveVia: a request in ZooKeeper, of which each partition is removed when its move has ended."""

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
