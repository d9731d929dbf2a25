"""The IsrStore that writes the ISR to the partition's state znode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.until import until

from minikafka.base.errors import CoordinationError, NotConnected, OutcomeUnknown, StaleSession
from minikafka.base.model import LeaderAndIsr, TopicPartition
from minikafka.broker.capabilities import IsrOutcome
from minikafka.broker.modes.controller.isr_store import ANNOUNCE_AFTER_MS, ZooKeeperIsrs
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import layout

TP = TopicPartition("t", 0)
U0, U1 = TopicPartition("u", 0), TopicPartition("u", 1)
STATE = LeaderAndIsr(0, 3, (0, 1), 1, state_version=0)


async def test_isr_change_is_abandoned_without_a_write_if_its_caller_no_longer_wants_it() -> None:
    ensemble, tasks = ZooKeeperInMemory(), TaskRegistry()
    ensemble.put(layout.state_path(TP), b"{}")
    session = InMemoryClient(ensemble)
    await session.attach()
    written = await ZooKeeperIsrs(session, SystemClock(), tasks).write(TP, STATE, lambda: False)
    assert written.outcome is IsrOutcome.ABANDONED
    assert ensemble.nodes[layout.state_path(TP)].data == b"{}"


async def test_isr_change_of_a_partition_without_a_state_node_is_abandoned() -> None:
    session = InMemoryClient(ZooKeeperInMemory())
    await session.attach()
    isrs = ZooKeeperIsrs(session, SystemClock(), TaskRegistry())
    assert (await isrs.write(TP, STATE, lambda: True)).outcome is IsrOutcome.ABANDONED


class Announcements:
    """A store of ISRs whose clock the test moves, on a session whose notifications fail when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ensemble, self.tasks, self.clock = ZooKeeperInMemory(), TaskRegistry(), ManualClock()
        self.ensemble.put(layout.ISR_CHANGES)
        self.session = InMemoryClient(self.ensemble)
        self.isrs = ZooKeeperIsrs(self.session, self.clock, self.tasks)
        self.failures: list[CoordinationError] = []
        self.meanwhile: tuple[TopicPartition, ...] = ()
        """Partitions whose ISRs are written during the next announcement that fails."""
        self.attempts = 0
        create = self.session.create

        async def fail_or_create(path: str, *arguments: Any, **options: Any) -> Any:
            self.attempts += 1
            if self.failures:
                meanwhile, self.meanwhile = self.meanwhile, ()
                await self.change(*meanwhile)
                raise self.failures.pop(0)
            return await create(path, *arguments, **options)

        monkeypatch.setattr(self.session, "create", fail_or_create)

    async def change(self, *tps: TopicPartition) -> None:
        """Write a changed ISR of each partition."""
        for tp in tps:
            self.ensemble.put(layout.state_path(tp), b"{}")
            assert (await self.isrs.write(tp, STATE, lambda: True)).outcome is IsrOutcome.WRITTEN

    async def announced(self, *tps: TopicPartition) -> None:
        """Let time pass until exactly these partitions have been announced."""

        def is_done() -> bool:
            self.clock.advance(ANNOUNCE_AFTER_MS)
            return self.seen() == sorted(tps)

        await until(is_done)

    def seen(self) -> list[TopicPartition]:
        names = self.ensemble.children(layout.ISR_CHANGES)
        data = (self.ensemble.nodes[f"{layout.ISR_CHANGES}/{name}"].data for name in names)
        return sorted(tp for each in data for tp in layout.decode_isr_change(each))

    async def ended(self) -> None:
        """Let time pass until the task of the announcements has ended."""

        def is_done() -> bool:
            self.clock.advance(ANNOUNCE_AFTER_MS)
            return not self.tasks.names()

        await until(is_done)


@pytest.fixture
async def announcements(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Announcements]:
    announcements = Announcements(monkeypatch)
    await announcements.session.attach()
    yield announcements
    await announcements.tasks.close()


@pytest.mark.parametrize(
    "error",
    [OutcomeUnknown("lost"), NotConnected("no connection"), StaleSession("another session")],
)
async def test_announcement_that_failed_is_repeated_with_the_changes_made_since(
    announcements: Announcements, error: CoordinationError
) -> None:
    announcements.failures = [error, error]
    announcements.meanwhile = (U1,)
    await announcements.change(TP, U0)
    await announcements.announced(TP, U0, U1)
    assert announcements.attempts == 3


async def test_change_whose_answer_was_lost_is_announced_when_it_was_written(
    announcements: Announcements, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = announcements.session.set

    async def answer_lost(*arguments: Any) -> Any:
        await write(*arguments)
        raise OutcomeUnknown("lost")

    monkeypatch.setattr(announcements.session, "set", answer_lost)
    await announcements.change(TP)
    await announcements.announced(TP)


async def test_announcement_waits_for_the_connection_and_is_then_repeated(
    announcements: Announcements,
) -> None:
    await announcements.change(TP)
    announcements.session.suspend()
    await until(lambda: announcements.clock.advance(1) or announcements.attempts == 1)
    await announcements.session.attach()
    await announcements.announced(TP)


async def test_changes_after_a_finished_announcement_are_announced_too(
    announcements: Announcements,
) -> None:
    await announcements.change(TP)
    await announcements.announced(TP)
    await announcements.ended()
    await announcements.change(U0)
    await announcements.announced(TP, U0)


async def test_changes_of_a_short_time_share_one_announcement(
    announcements: Announcements,
) -> None:
    await announcements.change(TP, U0, U1)
    await announcements.announced(TP, U0, U1)
    assert announcements.attempts == 1
