"""One candidate's attempt to become the controller, when its answer is lost or its session is replaced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from support.controller_bench import new_ensemble
from support.manual_clock import ManualClock
from support.memory_zookeeper_client import MemoryZooKeeper

from minikafka.base.errors import OutcomeUnknown, StaleSession
from minikafka.base.ports import Delete
from minikafka.broker.modes.controller.terms.election import Election, Won
from minikafka.ledger.record import NOTHING
from minikafka.zk import layout
from minikafka.zk.nodes.faults import Faults

OWN_ID = 1


class World:
    def __init__(self) -> None:
        self.ensemble = new_ensemble()
        self.ensemble.put(layout.CONTROLLER_EPOCH, b"4")
        self.session = MemoryZooKeeper(self.ensemble)
        self.session.attach()
        self.election = Election(
            OWN_ID, self.session, ManualClock(), NOTHING, lambda: None, Faults()
        )

    async def campaign(self) -> Won | None:
        return await self.election.campaign(self.session.generation)

    def epoch(self) -> tuple[bytes, int]:
        node = self.ensemble.nodes[layout.CONTROLLER_EPOCH]
        return node.data, node.version

    def lose_answer(self, meanwhile: Callable[[], Any], *, is_written: bool = True) -> None:
        """Lose the answer to the next multi, which the server has carried out or not. Then call `meanwhile`."""
        multi = self.session.multi

        async def lost(*arguments: Any, **options: Any) -> Any:
            self.session.multi = multi  # type: ignore[method-assign]
            if is_written:
                await multi(*arguments, **options)
            meanwhile()
            raise OutcomeUnknown("lost")

        self.session.multi = lost  # type: ignore[method-assign]


@pytest.fixture
def world() -> World:
    return World()


async def test_candidate_wins_with_an_epoch_that_is_one_higher(world: World) -> None:
    won = await world.campaign()
    assert won == Won(5, 1)
    assert world.epoch() == (b"5", 1)
    assert world.election.controller_id == OWN_ID


async def test_candidate_has_won_if_its_nodes_exist_after_a_lost_answer(world: World) -> None:
    world.lose_answer(lambda: None)
    assert await world.campaign() == Won(5, 1)


async def test_candidate_has_not_won_if_its_lost_write_was_not_carried_out(world: World) -> None:
    world.lose_answer(lambda: None, is_written=False)
    assert await world.campaign() is None
    assert world.epoch() == (b"4", 0)


@pytest.mark.parametrize("epoch", [b"6", b"5"])
async def test_candidate_has_not_won_if_the_epoch_was_written_again(
    world: World, epoch: bytes
) -> None:
    """Writes of this term would be refused, because they check the version of the epoch."""
    world.lose_answer(lambda: world.ensemble.put(layout.CONTROLLER_EPOCH, epoch))
    assert await world.campaign() is None


async def test_candidate_has_not_won_if_another_session_holds_the_controller_node(
    world: World,
) -> None:
    other = MemoryZooKeeper(world.ensemble)
    other.attach()

    def replaced() -> None:
        world.ensemble.nodes[layout.CONTROLLER].owner = other.session_id

    world.lose_answer(replaced)
    assert await world.campaign() is None


async def test_nodes_are_read_after_a_sync_when_the_answer_was_lost(world: World) -> None:
    """Without the sync, the server of the next connection may not have the write yet."""
    calls: list[str] = []

    def record(name: str) -> None:
        call: Callable[..., Awaitable[Any]] = getattr(world.session, name)

        async def recorded(*arguments: Any, **options: Any) -> Any:
            calls.append(name)
            return await call(*arguments, **options)

        setattr(world.session, name, recorded)

    world.lose_answer(lambda: [record(name) for name in ("sync", "exists", "get")])
    assert await world.campaign() == Won(5, 1)
    assert calls[0] == "sync"
    assert "exists" in calls[1:]
    assert "get" in calls[1:]


async def test_candidate_writes_nothing_in_a_later_session(world: World) -> None:
    generation = world.session.generation
    world.session.expire()
    world.session.attach()
    with pytest.raises(StaleSession):
        await world.election.campaign(generation)
    assert layout.CONTROLLER not in world.ensemble.nodes
    assert world.epoch() == (b"4", 0)


async def test_controller_of_a_later_session_is_not_deleted_by_an_earlier_resignation(
    world: World,
) -> None:
    generation = world.session.generation
    await world.campaign()
    stat = await world.election.look()
    assert stat is not None
    world.session.expire()
    world.session.attach()
    await world.campaign()
    with pytest.raises(StaleSession):
        await world.election.resign(generation, stat)
    assert layout.CONTROLLER in world.ensemble.nodes


async def test_controller_node_of_another_version_is_not_deleted(world: World) -> None:
    await world.campaign()
    stat = await world.election.look()
    assert stat is not None
    world.ensemble.put(layout.CONTROLLER, b"{}")
    await world.election.resign(world.session.generation, stat)
    assert layout.CONTROLLER in world.ensemble.nodes
    operations = world.session.multis[-1]
    assert Delete(layout.CONTROLLER, stat.version) in operations
