"""Batches of items for other brokers: what goes into one call, and how many calls are in progress."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from minikafka.broker.coordinators.peer_calls import CALLS_MAX, ITEMS_MAX, PeerCalls
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.loop import run_seeded


class Peers:
    """Calls that end when the test says so."""

    def __init__(self) -> None:
        self.begun: list[tuple[int, list[int]]] = []
        self.ends: list[asyncio.Future[None]] = []
        self.calls = PeerCalls(TaskRegistry(), self.call, "calls-to")

    async def call(self, broker_id: int, items: Sequence[int]) -> None:
        self.begun.append((broker_id, list(items)))
        self.ends.append(asyncio.get_running_loop().create_future())
        await self.ends[-1]

    async def add(self, broker_id: int, *items: int) -> None:
        """Add the items in one turn of the event loop, and let the calls begin."""
        for item in items:
            self.calls.add(broker_id, item)
        for _ in range(3):
            await asyncio.sleep(0)

    async def end(self, number: int) -> None:
        self.ends[number].set_result(None)
        for _ in range(3):
            await asyncio.sleep(0)


def test_items_of_one_turn_go_out_in_one_call_to_each_broker() -> None:
    async def scene() -> None:
        peers = Peers()
        peers.calls.add(1, 1)
        await peers.add(2, 2, 3)
        assert peers.begun == [(1, [1]), (2, [2, 3])]

    run_seeded(1, scene())


def test_items_gather_while_as_many_calls_as_possible_are_in_progress() -> None:
    async def scene() -> None:
        peers = Peers()
        for number in range(CALLS_MAX + 3):
            await peers.add(1, number)
        assert peers.begun == [(1, [number]) for number in range(CALLS_MAX)]
        await peers.end(2)
        assert peers.begun[CALLS_MAX:] == [(1, list(range(CALLS_MAX, CALLS_MAX + 3)))]

    run_seeded(1, scene())


def test_slow_call_delays_neither_later_items_nor_other_brokers() -> None:
    async def scene() -> None:
        peers = Peers()
        await peers.add(1, 1)
        await peers.add(1, 2)
        await peers.add(2, 3)
        assert peers.begun == [(1, [1]), (1, [2]), (2, [3])]
        await peers.end(1)
        await peers.add(1, 4)
        assert peers.begun[3:] == [(1, [4])]

    run_seeded(1, scene())


def test_many_items_go_out_in_several_calls() -> None:
    async def scene() -> None:
        peers = Peers()
        await peers.add(1, *range(ITEMS_MAX + 1))
        assert [len(items) for _, items in peers.begun] == [ITEMS_MAX, 1]

    run_seeded(1, scene())
