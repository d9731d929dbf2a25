"""How leadership comes back to the preferred replica: by the clock, by znode and by request."""

from __future__ import annotations

import asyncio

import pytest
from support.controller_bench import create_topic, until
from support.controller_office import T0, Office
from support.manual_clock import ManualClock

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.zk import layout


@pytest.mark.row("D7", "M2", "X20", "C29")
async def test_leaders_are_balanced_five_seconds_after_the_election_and_at_every_interval() -> None:
    clock = ManualClock()
    office = await Office(clock, leader_imbalance_check_interval_seconds=30).start()
    assert await imbalanced(office) == 3
    clock.advance(4_999)
    await office.idle()
    assert office.state().leader == 3  # type: ignore[union-attr]
    clock.advance(1)
    await office.led(2)
    assert await imbalanced(office) == 3
    await pass_time(clock, 29_999)
    await office.idle()
    assert office.state().leader == 3  # type: ignore[union-attr]
    await pass_time(clock, 1)
    await office.led(2)
    await office.candidate.close()


async def pass_time(clock: ManualClock, ms: int) -> None:
    """In steps, so that who sleeps again is woken again."""
    for step in [1_000] * (ms // 1_000) + [ms % 1_000]:
        clock.advance(step)
        for _ in range(5):
            await asyncio.sleep(0)


async def imbalanced(office: Office) -> int:
    """Let broker 3 lead the partition that prefers broker 2; who leads."""
    if not office.there(layout.topic_path("t")):
        create_topic(office.ensemble, "t", [2, 3])
        await office.led(2)
    state = office.state()
    assert state is not None
    if state.leader == 2:
        office.ensemble.delete(layout.broker_path(2))
        await office.led(3)
        office.register(2)
        await until(lambda: "2" in office.shown()["brokers"])
        await office.idle()
        office.join(3, 2)
        office.ensemble.put(layout.ISR_CHANGE_PREFIX + "1", layout.encode_isr_change([T0]))
        await until(lambda: not office.ensemble.children(layout.ISR_CHANGES))
        await office.idle()
    state = office.state()
    assert state is not None
    return state.leader


@pytest.mark.row("M2", "D7")
async def test_without_the_setting_nobody_balances() -> None:
    clock = ManualClock()
    office = await Office(clock, auto_leader_rebalance_enable=False).start()
    assert await imbalanced(office) == 3
    await pass_time(clock, 700_000)
    await office.idle()
    assert office.state().leader == 3  # type: ignore[union-attr]
    await office.candidate.close()


@pytest.mark.row("E5", "A12", "X26", "I7")
async def test_a_preferred_election_by_znode_is_carried_out_and_the_node_removed(
    office: Office,
) -> None:
    assert await imbalanced(office) == 3
    office.ensemble.put(layout.PREFERRED_ELECTION, layout.encode_preferred_election([T0]))
    await office.led(2)
    await until(lambda: not office.there(layout.PREFERRED_ELECTION))


@pytest.mark.row("X26", "R61", "I7")
async def test_a_preferred_election_by_request_is_answered_per_partition(office: Office) -> None:
    assert await imbalanced(office) == 3
    elect = office.candidate.service.elect_leaders
    none = TopicPartition("none", 0)
    results = await elect(unclean=False, partitions=[T0, none])
    assert results[T0].code is ErrorCode.NONE
    assert results[none].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert office.state().leader == 2  # type: ignore[union-attr]
    again = await elect(unclean=False, partitions=None)
    assert again[T0].code is ErrorCode.ELECTION_NOT_NEEDED
