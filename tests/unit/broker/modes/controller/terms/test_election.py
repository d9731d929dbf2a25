"""One candidate's attempt to become the controller: lost answers, replaced sessions, takeovers and resignations."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

import pytest
from support.brokers.controller_bench import new_ensemble
from support.brokers.mode_ports import mode_ports

from minikafka.base.errors import OutcomeUnknown, StaleSession
from minikafka.base.ports import Delete
from minikafka.broker.modes.controller.terms.election import (
    ControllerElection,
    EpochNotReadable,
    Former,
    Won,
)
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import election, layout

OWN_ID = 1


class World:
    def __init__(self) -> None:
        self.ensemble = new_ensemble()
        self.ensemble.put(layout.CONTROLLER_EPOCH, b"4")
        self.session = InMemoryClient(self.ensemble)
        self.election = ControllerElection(mode_ports(OWN_ID, zookeeper=self.session), lambda: None)

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
async def world() -> World:
    world = World()
    await world.session.attach()
    return world


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
    other = InMemoryClient(world.ensemble)
    await other.attach()

    def replaced() -> None:
        data = world.ensemble.nodes[layout.CONTROLLER].data
        world.ensemble.delete(layout.CONTROLLER)
        world.ensemble.put(layout.CONTROLLER, data, owner=other.session_id)

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
    await world.session.expire()
    await world.session.attach()
    with pytest.raises(StaleSession):
        await world.election.campaign(generation)
    assert layout.CONTROLLER not in world.ensemble.nodes
    assert world.epoch() == (b"4", 0)


async def test_controller_of_a_later_session_is_not_deleted_by_an_earlier_resignation(
    world: World,
) -> None:
    generation = world.session.generation
    await world.campaign()
    await world.session.expire()
    await world.session.attach()
    await world.campaign()
    with pytest.raises(StaleSession):
        await world.election.resign(generation)
    assert layout.CONTROLLER in world.ensemble.nodes


async def test_controller_node_of_another_version_is_not_deleted(world: World) -> None:
    await world.campaign()
    stat = await world.election.look()
    assert stat is not None
    data = world.ensemble.nodes[layout.CONTROLLER].data
    world.session.before_multi = lambda _: world.ensemble.put(layout.CONTROLLER, data)
    await world.election.resign(world.session.generation)
    assert layout.CONTROLLER in world.ensemble.nodes
    operations = world.session.multis[-1]
    assert Delete(layout.CONTROLLER, stat.version) in operations


# Taking over from a controller whose process has died.


NODES = {"after the epoch": layout.CONTROLLER_EPOCH, "after the node": layout.CONTROLLER}
"""The node whose read is followed by the election of a successor."""


class Rival:
    """Another broker's session and election on the same ensemble."""

    def __init__(self, world: World, broker_id: int) -> None:
        self.session = InMemoryClient(world.ensemble)
        self.election = ControllerElection(
            mode_ports(broker_id, zookeeper=self.session), lambda: None
        )

    async def attached(self) -> Self:
        await self.session.attach()
        return self

    async def campaign(self) -> Won | None:
        return await self.election.campaign(self.session.generation)

    async def take_over(self, former: Former) -> Won | None:
        return await self.election.take_over(self.session.generation, former)

    def former(self) -> Former:
        """Return the controllership of this rival as a candidate sees it."""
        return Former(self.election.controller_id, self.session.session_id, 0, "refused")


@pytest.fixture
async def controller(world: World) -> Rival:
    """Broker 2, the controller of epoch 5."""
    controller = await Rival(world, 2).attached()
    assert await controller.campaign() == Won(5, 1)
    return controller


def owner(world: World) -> int:
    return world.ensemble.nodes[layout.CONTROLLER].owner


async def test_candidate_takes_over_in_the_next_epoch(world: World, controller: Rival) -> None:
    won = await world.election.take_over(world.session.generation, controller.former())
    assert won == Won(6, 2)
    assert world.epoch() == (b"6", 2)
    assert owner(world) == world.session.session_id
    assert world.election.controller_id == OWN_ID


async def test_one_of_two_candidates_takes_over_when_both_try_at_once(
    world: World, controller: Rival
) -> None:
    rivals = [await Rival(world, n).attached() for n in (3, 4)]
    former = controller.former()
    won = await asyncio.gather(*(rival.take_over(former) for rival in rivals))
    assert sorted(won, key=lambda one: one is None) == [Won(6, 2), None]
    assert owner(world) == rivals[won[1] is not None].session.session_id


@pytest.mark.parametrize("moment", ["after the epoch", "after the node", "before the multi"])
async def test_successor_that_is_elected_meanwhile_keeps_its_node(
    world: World, controller: Rival, moment: str
) -> None:
    """The node of the successor has version 0, like the node of the former controller."""
    successor = await Rival(world, 3).attached()

    def elect() -> None:
        operations = election.takeover(3, 6, 1, 0, 0)
        world.ensemble.write(operations, successor.session.session_id)

    if moment == "before the multi":
        world.session.before_multi = lambda _: elect()
    else:
        after_read(world, NODES[moment], elect)
    former = controller.former()
    assert await world.election.take_over(world.session.generation, former) is None
    assert owner(world) == successor.session.session_id
    assert world.epoch() == (b"6", 2)


def after_read(world: World, path: str, then: Callable[[], None]) -> None:
    """Call `then` after the next read of a node by the candidate."""
    get = world.session.get

    async def read(asked: str, *, watch: bool = False) -> Any:
        node = await get(asked, watch=watch)
        if asked == path:
            world.session.get = get  # type: ignore[method-assign]
            then()
        return node

    world.session.get = read  # type: ignore[method-assign]


@pytest.mark.parametrize("change", ["another session", "another broker", "gone", "malformed"])
async def test_candidate_writes_nothing_if_the_controller_is_no_longer_the_former_one(
    world: World, controller: Rival, change: str
) -> None:
    former = controller.former()
    if change == "another session":
        former = former._replace(owner=former.owner + 1)
    elif change == "another broker":
        former = former._replace(broker_id=3)
    elif change == "gone":
        await controller.election.resign(controller.session.generation)
    else:
        world.ensemble.put(layout.CONTROLLER, b"{")
    assert await world.election.take_over(world.session.generation, former) is None
    assert world.session.multis == []
    assert world.epoch() == (b"5", 1)


async def test_candidate_does_not_take_over_while_the_epoch_is_malformed(
    world: World, controller: Rival
) -> None:
    world.ensemble.put(layout.CONTROLLER_EPOCH, b"five")
    with pytest.raises(EpochNotReadable):
        await world.election.take_over(world.session.generation, controller.former())
    assert owner(world) == controller.session.session_id


async def test_takeover_fails_without_an_error_if_the_former_controller_resigns_meanwhile(
    world: World, controller: Rival
) -> None:
    former = controller.former()
    world.session.before_multi = lambda _: world.ensemble.end_session(former.owner)
    assert await world.election.take_over(world.session.generation, former) is None
    assert world.epoch() == (b"5", 1)


async def test_takeover_whose_answer_was_lost_counts_if_it_was_carried_out(
    world: World, controller: Rival
) -> None:
    former = controller.former()
    world.lose_answer(lambda: None)
    assert await world.election.take_over(world.session.generation, former) == Won(6, 2)


async def test_takeover_whose_answer_was_lost_does_not_count_if_it_was_not_carried_out(
    world: World, controller: Rival
) -> None:
    former = controller.former()
    world.lose_answer(lambda: None, is_written=False)
    assert await world.election.take_over(world.session.generation, former) is None
    assert (owner(world), world.epoch()) == (former.owner, (b"5", 1))


async def test_takeover_whose_answer_was_lost_does_not_count_if_it_was_replaced(
    world: World, controller: Rival
) -> None:
    former, third = controller.former(), await Rival(world, 3).attached()

    def replace() -> None:
        world.ensemble.write(election.takeover(3, 7, 2, 0, 0), third.session.session_id)

    world.lose_answer(replace)
    assert await world.election.take_over(world.session.generation, former) is None
    assert (owner(world), world.epoch()) == (third.session.session_id, (b"7", 3))


@pytest.mark.parametrize("moment", ["after the epoch", "after the node", "before the multi"])
async def test_former_controller_that_resigns_does_not_delete_the_node_of_its_successor(
    world: World, moment: str
) -> None:
    await world.campaign()
    successor = await Rival(world, 2).attached()

    def replace() -> None:
        world.ensemble.write(election.takeover(2, 6, 1, 0, 0), successor.session.session_id)

    if moment == "before the multi":
        world.session.before_multi = lambda _: replace()
    else:
        after_read(world, NODES[moment], replace)
    await world.election.resign(world.session.generation)
    assert owner(world) == successor.session.session_id
