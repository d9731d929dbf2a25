"""Leadership returns to the preferred replica: by the periodic check, by znode and by request."""

from __future__ import annotations

import asyncio

import pytest
from support.brokers.controller_bench import (
    T0,
    ControllerBench,
    create_topic,
    encode_preferred_election,
    until,
)

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.simulation.clocks import ManualClock
from minikafka.zookeeper.nodes import layout


@pytest.mark.row("D7", "M2", "X20", "C29")
@pytest.mark.key("leader.imbalance.check.interval.seconds")
async def test_leaders_are_balanced_5_s_after_controller_start_and_at_every_interval() -> None:
    clock = ManualClock()
    bench = await ControllerBench(clock, leader_imbalance_check_interval_seconds=30).elected()
    assert await imbalanced(bench) == 3
    clock.advance(4_999)
    await bench.idle()
    assert bench.state().leader == 3  # type: ignore[union-attr]
    clock.advance(1)
    await bench.led(2)
    assert await imbalanced(bench) == 3
    await pass_time(clock, 29_999)
    await bench.idle()
    assert bench.state().leader == 3  # type: ignore[union-attr]
    await pass_time(clock, 1)
    await bench.led(2)
    await bench.close()


async def pass_time(clock: ManualClock, ms: int) -> None:
    """Advance the clock in steps of at most a second, so that a task that sleeps repeatedly runs each time."""
    for step in [1_000] * (ms // 1_000) + [ms % 1_000]:
        clock.advance(step)
        for _ in range(5):
            await asyncio.sleep(0)


async def imbalanced(bench: ControllerBench) -> int:
    """Make broker 3 the leader of a partition whose preferred replica is on broker 2; return the leader."""
    if not bench.there(layout.topic_path("t")):
        create_topic(bench.ensemble, "t", [2, 3])
        await bench.led(2)
    state = bench.state()
    assert state is not None
    if state.leader == 2:
        bench.ensemble.delete(layout.broker_path(2))
        await bench.led(3)
        bench.register_broker(2)
        await until(lambda: "2" in bench.shown()["brokers"])
        await bench.idle()
        bench.join(3, 2)
        bench.ensemble.put(layout.ISR_CHANGE_PREFIX + "1", layout.encode_isr_change([T0]))
        await until(lambda: not bench.ensemble.children(layout.ISR_CHANGES))
        await bench.idle()
    state = bench.state()
    assert state is not None
    return state.leader


@pytest.mark.row("M2", "D7")
@pytest.mark.key("auto.leader.rebalance.enable")
async def test_preferred_leader_does_not_take_over_when_auto_leader_rebalance_is_off() -> None:
    clock = ManualClock()
    bench = await ControllerBench(clock, auto_leader_rebalance_enable=False).elected()
    assert await imbalanced(bench) == 3
    await pass_time(clock, 700_000)
    await bench.idle()
    assert bench.state().leader == 3  # type: ignore[union-attr]
    await bench.close()


@pytest.mark.row("E5", "A12", "X26", "I7")
async def test_preferred_election_by_znode_elects_and_deletes_the_node(
    bench: ControllerBench,
) -> None:
    assert await imbalanced(bench) == 3
    bench.ensemble.put(layout.PREFERRED_ELECTION, encode_preferred_election([T0]))
    await bench.led(2)
    await until(lambda: not bench.there(layout.PREFERRED_ELECTION))


@pytest.mark.row("X26", "R61", "I7")
async def test_preferred_election_by_request_is_answered_per_partition(
    bench: ControllerBench,
) -> None:
    assert await imbalanced(bench) == 3
    elect = bench.service.elect_leaders
    none = TopicPartition("none", 0)
    results = await elect(unclean=False, partitions=[T0, none])
    assert results[T0].code is ErrorCode.NONE
    assert results[none].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.state().leader == 2  # type: ignore[union-attr]
    again = await elect(unclean=False, partitions=None)
    assert again[T0].code is ErrorCode.ELECTION_NOT_NEEDED
