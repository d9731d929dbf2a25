"""ISRs in the nodes of the leader-coordinated mode: one compare-and-set, whose outcome is certain."""

from __future__ import annotations

import pytest

from minikafka.base.model import NO_EPOCH, LeaderAndIsr, TopicPartition
from minikafka.broker.capabilities import IsrOutcome, IsrWrite
from minikafka.broker.modes.leaders.host import LeadersIsrs
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient

TP = TopicPartition("t", 0)
ISR = "/leaders/brokers/topics/t/0/ISR"
STATE = LeaderAndIsr(0, 7, (0, 1), NO_EPOCH, state_version=0)


class World:
    """A leader whose node ISR has three replicas. `outcomes`: what the leader was told."""

    def __init__(self) -> None:
        self.ensemble = ZooKeeperInMemory()
        self.outcomes: list[tuple[TopicPartition, IsrOutcome]] = []
        self.ensemble.put(ISR, b"0,1,2;7")
        self.session = InMemoryClient(self.ensemble)
        self.isrs = LeadersIsrs(
            self.session, lambda tp, outcome: self.outcomes.append((tp, outcome))
        )

    async def write(self, state: LeaderAndIsr = STATE, *, is_wanted: bool = True) -> IsrWrite:
        return await self.isrs.write(TP, state, lambda: is_wanted)

    @property
    def node(self) -> bytes:
        return self.ensemble.nodes[ISR].data


@pytest.mark.row("R26")
async def test_isr_is_written_with_the_epoch_of_the_leader_at_the_version_that_it_knows() -> None:
    world = World()
    written = await world.write()
    assert written == IsrWrite(IsrOutcome.WRITTEN, 1, world.ensemble.nodes[ISR].mzxid)
    assert world.node == b"0,1;7"
    assert world.outcomes == [(TP, IsrOutcome.WRITTEN)]


async def test_isr_of_a_new_leader_is_not_overwritten_and_the_conflict_is_reported() -> None:
    world = World()
    world.ensemble.put(ISR, b"0,1,2;8")
    assert await world.write() == IsrWrite(IsrOutcome.CONFLICT)
    assert world.node == b"0,1,2;8"
    assert world.outcomes == [(TP, IsrOutcome.CONFLICT)]


@pytest.mark.row("R28")
@pytest.mark.parametrize("fault", ["unanswered", "lagging"])
async def test_isr_counts_as_written_if_only_the_answer_was_lost(fault: str) -> None:
    world = World()
    world.session.faults = [fault]
    assert await world.write() == IsrWrite(IsrOutcome.WRITTEN, 1)
    assert (world.node, world.outcomes) == (b"0,1;7", [(TP, IsrOutcome.WRITTEN)])


async def test_isr_is_written_again_if_the_write_was_lost() -> None:
    world = World()
    world.session.faults = ["lost"]
    assert (await world.write()).outcome is IsrOutcome.WRITTEN
    assert world.node == b"0,1;7"


async def test_isr_that_was_not_sent_or_is_not_wanted_is_not_written() -> None:
    world = World()
    world.session.faults = ["unsent"]
    assert (await world.write()).outcome is IsrOutcome.NOT_SENT
    assert (await world.write(is_wanted=False)).outcome is IsrOutcome.ABANDONED
    assert world.node == b"0,1,2;7"
    told = [outcome for _, outcome in world.outcomes]
    assert told == [IsrOutcome.NOT_SENT, IsrOutcome.ABANDONED]


async def test_isr_of_a_deleted_partition_is_abandoned() -> None:
    world = World()
    world.ensemble.delete(ISR)
    assert (await world.write()).outcome is IsrOutcome.ABANDONED
    assert world.outcomes == [(TP, IsrOutcome.ABANDONED)]
