"""Transactional ids that expire in great numbers."""

from __future__ import annotations

from support.deciders.coordinator_world import START_WALL_MS
from support.deciders.transaction_world import TransactionWorld, record

from minikafka.deciders.decider import ClockAdvanced, TimerDue
from minikafka.deciders.transactions.states import TransactionMetadata, TransactionState


def test_many_ids_expire_in_several_calls():
    old = TransactionMetadata(40, 3, 60_000, TransactionState.EMPTY, START_WALL_MS - 100_000)
    names = [f"copy-{number}" for number in range(1_203)]
    records = (record(old, name) for name in names)
    world = TransactionWorld(*records, expiration_ms=60_000, remove_expired_interval_ms=1_000)

    world.now += 1_000
    world.handle(TimerDue())
    assert len(world.list().transactions) == 703
    assert world.coordinator.next_deadline() == world.now
    world.advance(0)
    assert world.list().transactions == []


def test_all_expired_ids_go_at_once_when_the_clock_is_advanced():
    old = TransactionMetadata(40, 3, 60_000, TransactionState.EMPTY, START_WALL_MS - 100_000)
    records = (record(old, f"copy-{number}") for number in range(1_203))
    world = TransactionWorld(*records, expiration_ms=60_000)
    world.handle(ClockAdvanced())
    assert world.list().transactions == []


def test_advanced_clock_does_not_end_an_open_transaction():
    world = TransactionWorld(abort_timed_out_interval_ms=1_000)
    producer = world.init(timeout_ms=60_000)
    world.add((producer.producer_id, producer.producer_epoch))
    world.advanced_ms = 3_600_000
    world.handle(ClockAdvanced())
    world.advance(30_000)
    assert world.describe().state == "Ongoing"
    world.advance(40_000)
    assert world.describe().state != "Ongoing"
