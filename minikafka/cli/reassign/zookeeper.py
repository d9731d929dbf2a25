"""`reassign --via-zookeeper`: write a request to `/admin/reassign_partitions`, like the tool of KAFKA-42.

In a cluster without a controller, write one node per partition below `/leaders/brokers/partitions_reassigned` instead.
Invariant: if the command is interrupted or times out, it takes back the moves that the controller (or no leader) has
not begun, and prints the state of every move. If ZooKeeper does not answer, the request stays in ZooKeeper.
"""

from __future__ import annotations

from typing import Final

from minikafka.cli.arguments.placement import Plan
from minikafka.cli.reassign.jobs import ReassignOptions
from minikafka.cli.reassign.moves import Move, Replicas, Results
from minikafka.cli.reassign.outcome import result_of
from minikafka.cli.terminal.echo import echo
from minikafka.cluster.reassign_node import ReassignmentNode
from minikafka.cluster.reassignments_by_leaders import (
    ReassignmentsByLeaders,
    reassignment_request,
)
from minikafka.runtime.clock import SystemClock, SystemRng


async def move_by_node(options: ReassignOptions, plan: Plan, connect: str) -> bool:
    """Move partitions through the node at `connect` (host:port[/chroot]); return the result of `Move.do`."""
    async with reassignment_request(connect, plan, SystemClock(), SystemRng()) as request:
        return await Move(options, plan, ViaNode(request)).do()


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
        """Write the request. Single partitions are refused later, without a reason."""
        await self._request.submit()
        return {}

    async def wait(self, _: Plan) -> None:
        """Wait until the whole plan has been removed."""
        await self._request.finished()

    async def results(self, plan: Plan, *, ends_early: bool) -> Results:
        """Return the state in the topic nodes; first take back what has not begun, at an early end."""
        if ends_early:
            for tp in await self._request.take_back():
                echo(f"{tp}: the request was taken back", err=True)
        found = await self._request.assignments()
        return {tp: result_of(target, found.get(tp)) for tp, target in plan.items()}

    async def end(self) -> None:
        """Do nothing: --via-zookeeper sets no throttle."""
