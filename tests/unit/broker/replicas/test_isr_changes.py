"""A leader's ISR writes to ZooKeeper: lost responses, concurrent writers, and notifications."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from support.brokers.controller_bench import until
from support.ledger.recording_ledger import RecordingLedger
from support.storage.replication import TP, Replicas

from minikafka.base.errors import NotConnected, OutcomeUnknown, StaleSession
from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.base.ports import Stat
from minikafka.broker.capabilities import IsrOutcome, IsrWrite
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.modes.controller.isr_store import ZooKeeperIsrs
from minikafka.broker.replicas.isr_changes import IsrChanges
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.storage.replication.isr import Committed, PendingExpand
from minikafka.zookeeper.nodes import layout

PATH = layout.state_path(TP)


class Bench:
    """A leader with an in-memory ZooKeeper. Follower 1 can join the ISR."""

    def __init__(self, isr: tuple[int, ...] = (0,)) -> None:
        self.ensemble = ZooKeeperInMemory()
        self.zookeeper = InMemoryClient(self.ensemble)
        self.crashed: list[str] = []
        self.tasks = TaskRegistry(lambda name, _: self.crashed.append(name))
        self.ledger = RecordingLedger()
        self.replicas = Replicas((0, 1), isr=isr)
        self.replicas.elect(0)
        self.partition = self.replicas[0].partition
        self.changes = IsrChanges(
            ZooKeeperIsrs(self.zookeeper, SystemClock(), self.tasks),
            {TP: self.partition},
            MetadataCache(SystemClock()),
            self.replicas[0].purgatory,
            ManualClock(),  # time stands still: no follower lags
            self.tasks,
            self.ledger,
        )
        before = LeaderAndIsr(0, self.partition.leader_epoch, isr, 1, 0)
        self.ensemble.put(layout.ISR_CHANGES)
        self.ensemble.put(PATH, layout.encode_state(before))
        self.partition.state_version = 0

    def propose(self) -> None:
        self.partition.expand_isr(1)
        self.changes.propose(self.partition)

    def is_committed(self) -> bool:
        return self.partition.isr == (0, 1)

    def node(self) -> LeaderAndIsr:
        found = self.ensemble.nodes[PATH]
        return layout.decode_state(found.data, found.version)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    await bench.zookeeper.attach()
    bench.changes.start()
    yield bench
    await bench.tasks.close()
    assert bench.crashed == [], "an assertion in the writer's task"


@pytest.mark.row("A10", "A14", "X19", "X23", "R26")
async def test_isr_write_keeps_the_leader_epoch_and_creates_a_notification(bench: Bench) -> None:
    bench.propose()
    await until(bench.is_committed)
    node = bench.node()
    assert (node.isr, node.leader_epoch, node.state_version) == ((0, 1), 0, 1)
    assert bench.partition.state_version == 1
    (name,) = await until(lambda: bench.ensemble.children(layout.ISR_CHANGES))
    announced = bench.ensemble.nodes[f"{layout.ISR_CHANGES}/{name}"].data
    assert layout.decode_isr_change(announced) == [TP]


@pytest.mark.row("T18", "R28")
async def test_isr_change_is_committed_when_the_response_to_its_write_was_lost(
    bench: Bench,
) -> None:
    write = bench.zookeeper.set

    async def unanswered(path: str, data: bytes, version: int, **session: int) -> Stat:
        bench.zookeeper.set = write  # type: ignore[method-assign]
        await write(path, data, version, **session)
        raise OutcomeUnknown

    bench.zookeeper.set = unanswered  # type: ignore[method-assign, assignment]
    bench.propose()
    await until(bench.is_committed)
    assert bench.partition.isr == (0, 1)
    assert bench.node().state_version == bench.partition.state_version == 1, "written once"


async def test_isr_change_is_committed_when_a_tool_has_made_the_node_again_with_it(
    bench: Bench,
) -> None:
    """The node begins again with version 0."""
    bench.partition.state_version = 5
    bench.partition.expand_isr(1)
    bench.ensemble.nodes[PATH].data = layout.encode_state(bench.partition.proposed_state())
    bench.changes.propose(bench.partition)
    await until(bench.is_committed)
    assert bench.partition.state_version == bench.node().state_version == 0


@pytest.mark.row("R28")
async def test_isr_is_written_again_when_its_write_was_lost_before_zookeeper_had_it(
    bench: Bench,
) -> None:
    write = bench.zookeeper.set

    async def lost(path: str, data: bytes, version: int, **session: int) -> Stat:
        bench.zookeeper.set = write  # type: ignore[method-assign]
        raise OutcomeUnknown

    bench.zookeeper.set = lost  # type: ignore[method-assign, assignment]
    bench.propose()
    await until(bench.is_committed)
    assert bench.partition.isr == bench.node().isr == (0, 1)


@pytest.mark.row("T18", "R28")
async def test_isr_change_stays_pending_until_zookeeper_shows_that_it_was_written(
    bench: Bench,
) -> None:
    """The write may have succeeded. Until a read shows this, the joining replica counts for the high watermark."""
    write, sync = bench.zookeeper.set, bench.zookeeper.sync
    asked = 0

    async def unanswered(path: str, data: bytes, version: int, **session: int) -> Stat:
        await write(path, data, version, **session)
        raise OutcomeUnknown

    async def interrupted(path: str) -> None:
        nonlocal asked
        asked += 1
        assert type(bench.partition.isr_state) is PendingExpand
        if asked <= 3:
            raise (NotConnected, OutcomeUnknown, StaleSession)[asked - 1]
        await sync(path)

    bench.zookeeper.set = unanswered  # type: ignore[method-assign, assignment]
    bench.zookeeper.sync = interrupted  # type: ignore[method-assign]
    bench.propose()
    await until(bench.is_committed)
    assert bench.partition.isr == bench.node().isr == (0, 1)
    assert asked == 4


async def test_isr_of_a_leader_that_is_not_in_it_is_written() -> None:
    """A tool has written such a state node. A crash of the writer would end the changes of all ISRs."""
    bench = Bench(isr=(2,))
    await bench.zookeeper.attach()
    bench.changes.start()
    bench.propose()
    await until(lambda: bench.partition.isr == (2, 1))
    assert bench.node().isr == (2, 1)
    await bench.tasks.close()
    assert bench.crashed == []


@pytest.mark.row("R3", "R28")
async def test_isr_change_stays_pending_when_another_writer_changed_the_partition_state(
    bench: Bench,
) -> None:
    moved_on = replace(bench.node(), leader_epoch=7)
    bench.ensemble.put(PATH, layout.encode_state(moved_on))
    bench.propose()
    await until(lambda: bench.ledger.lines)
    assert bench.node().leader_epoch == 7
    assert type(bench.partition.isr_state) is PendingExpand, "until the controller says more"
    assert not bench.is_committed()


async def test_isr_can_be_proposed_again_when_its_write_was_never_sent(bench: Bench) -> None:
    bench.zookeeper.suspend()
    bench.propose()
    await until(lambda: type(bench.partition.isr_state) is Committed)
    await bench.zookeeper.attach()
    bench.propose()
    await until(bench.is_committed)
    assert bench.node().isr == (0, 1)


async def test_notification_task_ends_without_an_error_when_the_session_is_closed(
    bench: Bench,
) -> None:
    bench.propose()
    await until(bench.is_committed)
    await bench.zookeeper.close()
    await until(lambda: "isr-announcements" not in bench.tasks.names())
    assert bench.crashed == []


class Overtaken:
    """An IsrStore. While it writes, the partition receives a later LeaderAndIsr."""

    def __init__(self, bench: Bench, outcome: IsrOutcome) -> None:
        self.bench = bench
        self.outcome = outcome

    async def write(
        self, tp: TopicPartition, state: LeaderAndIsr, is_wanted: Callable[[], bool]
    ) -> IsrWrite:
        assert is_wanted()
        self.bench.replicas.elect(0, isr=(0,))
        self.bench.partition.expand_isr(1)
        assert not is_wanted()
        return IsrWrite(self.outcome, version=state.state_version + 1)


@pytest.mark.parametrize("outcome", [IsrOutcome.WRITTEN, IsrOutcome.NOT_SENT])
async def test_outcome_of_a_superseded_isr_proposal_is_ignored(
    bench: Bench, outcome: IsrOutcome
) -> None:
    bench.changes._store = Overtaken(bench, outcome)
    bench.propose()
    await until(lambda: bench.partition.leader_epoch == 1)
    await bench.tasks.close()
    assert type(bench.partition.isr_state) is PendingExpand, "the later proposal is still pending"
    assert not bench.is_committed()


async def test_isr_of_a_stopped_partition_is_not_written(bench: Bench) -> None:
    bench.propose()
    bench.partition.stop()
    await bench.ensemble.time_for_requests()
    assert bench.node().isr == (0,)


async def test_slow_write_of_one_isr_does_not_delay_the_write_of_another_one() -> None:
    first, second = Bench(), Bench()
    first.changes._store = store = Slow()  # type: ignore[assignment]
    for bench in (first, second):
        bench.partition.expand_isr(1)
        first.changes.propose(bench.partition)
    first.changes.start()
    await until(second.is_committed, seconds=5)
    assert not first.is_committed()
    store.answer.set()
    await until(first.is_committed, seconds=5)
    await first.tasks.close()


class Slow:
    """A store whose first write is not answered before the test says so."""

    def __init__(self) -> None:
        self.answer = asyncio.Event()
        self.writes = 0

    async def write(
        self, tp: TopicPartition, state: LeaderAndIsr, is_wanted: Callable[[], bool]
    ) -> IsrWrite:
        self.writes += 1
        if self.writes == 1:
            await self.answer.wait()
        return IsrWrite(IsrOutcome.WRITTEN, 7)
