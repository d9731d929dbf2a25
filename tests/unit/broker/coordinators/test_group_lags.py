from __future__ import annotations

import asyncio
import re
from collections.abc import Collection

import pytest

from minikafka.base.metrics import Metrics, prometheus_text
from minikafka.base.model import TopicPartition
from minikafka.broker.broker import BrokerServer
from minikafka.broker.coordinators import group_lags as lags
from minikafka.broker.coordinators.group_lags import REFRESH_MS, GroupLags
from minikafka.client import NewTopic
from minikafka.deciders.groups.group import Group
from minikafka.deciders.groups.offsets import GroupOffsets, OffsetAndMetadata
from minikafka.kafka.records.batch import Record
from minikafka.simulation.clocks import ManualClock
from minikafka.simulation.cluster import MemoryCluster

Pairs = dict[tuple[str, str, str], int]


async def page_of(broker: BrokerServer) -> str:
    return "\n".join([piece async for piece in broker._metrics_page()])


def lags_in(page: str) -> Pairs:
    rows = re.findall(
        r'^kafka_consumergroup_lag\{consumergroup="(.*)",topic="(.*)",partition="(.*)"\} (\d+)$',
        page,
        re.MULTILINE,
    )
    return {(group, topic, partition): int(lag) for group, topic, partition, lag in rows}


def unknown_in(page: str) -> int:
    [found] = re.findall(r"^kafka_consumergroup_lag_unknown (\d+)$", page, re.MULTILINE)
    return int(found)


async def test_coordinator_knows_the_lag_of_partitions_that_other_brokers_lead(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lags, "REFRESH_MS", 0)
    config = {"offsets_topic_num_partitions": 1, "offsets_topic_replication_factor": 1}
    async with MemoryCluster(3, **config) as cluster, cluster.client() as client:
        # Partition N is led by broker N; the group's coordinator leads at most one of the three.
        await client.create_topics(
            NewTopic("t", -1, -1, assignment={number: (number,) for number in range(3)})
        )
        for number in range(3):
            records = [Record(value=b"v")] * (10 + number)
            await client.produce("t", records, partition=number)
        committed = {TopicPartition("t", number): 2 * number for number in range(3)}
        await client.groups.alter_offsets("shop", committed)

        pages = {number: await page_of(broker) for number, broker in cluster.brokers.items()}
        [home] = [number for number, page in pages.items() if lags_in(page)]
        expected = {("shop", "t", "0"): 10, ("shop", "t", "1"): 9, ("shop", "t", "2"): 8}
        assert lags_in(pages[home]) == expected
        assert {unknown_in(page) for page in pages.values()} == {0}

        gone = (home + 1) % 3
        await cluster.stop(gone, controlled=False)
        page = await page_of(cluster.brokers[home])
        del expected["shop", "t", str(gone)]
        assert lags_in(page) == expected
        assert unknown_in(page) == 1


class Leaders:
    """The answers of the leaders: `end` for every partition, except those in `silent`."""

    def __init__(self) -> None:
        self.end = 100
        self.silent: set[TopicPartition] = set()
        self.asked: list[set[TopicPartition]] = []

    async def read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self.asked.append(set(partitions))
        await asyncio.sleep(0)
        return {tp: self.end for tp in partitions if tp not in self.silent}


class World:
    """The groups of one coordinator, and its metrics page."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.leaders = Leaders()
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.lags = GroupLags(self.metrics, self.groups, self.leaders.read, self.clock)

    def commit(self, name: str, partitions: int, offset: int) -> None:
        group = self.groups[name] = Group(name, 0, GroupOffsets(name), 0)
        for number in range(partitions):
            value = OffsetAndMetadata(offset, -1, "", 0, -1)
            group.offsets.load(TopicPartition("t", number), value)

    def page(self) -> str:
        return "\n".join(prometheus_text(self.metrics))


async def test_leaders_are_asked_once_for_readings_at_the_same_time() -> None:
    world = World()
    world.commit("g", 2, 90)

    async def reading() -> set[int]:
        await world.lags.refresh()
        return set(lags_in(world.page()).values())

    assert await asyncio.gather(reading(), reading(), reading()) == [{10}] * 3
    assert world.leaders.asked == [{TopicPartition("t", 0), TopicPartition("t", 1)}]
    world.commit("g", 2, 95)
    assert set(lags_in(world.page()).values()) == {5}  # commits need no question
    world.clock.advance(REFRESH_MS)
    world.leaders.end = 90
    await world.lags.refresh()
    assert set(lags_in(world.page()).values()) == {0}
    assert len(world.leaders.asked) == 2


async def test_age_of_high_watermarks_counts_from_the_question_to_slow_leaders() -> None:
    world = World()
    world.commit("g", 1, 90)
    read = world.leaders.read

    async def slow(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        ends = await read(partitions)
        world.clock.advance(REFRESH_MS)
        return ends

    world.lags._read_ends = slow
    for asked in range(1, 4):
        await world.lags.refresh()
        assert len(world.leaders.asked) == asked


async def test_leaders_are_asked_again_after_a_question_that_failed() -> None:
    world = World()
    world.commit("g", 1, 90)
    read, world.lags._read_ends = world.lags._read_ends, failing
    with pytest.raises(OSError, match="no answer"):
        await world.lags.refresh()
    world.lags._read_ends = read
    world.clock.advance(REFRESH_MS)
    await world.lags.refresh()
    assert set(lags_in(world.page()).values()) == {10}


async def failing(_: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    raise OSError("no answer")


async def test_broker_without_committed_offsets_asks_no_leader() -> None:
    world = World()
    world.commit("empty", 0, 0)
    await world.lags.refresh()
    assert world.leaders.asked == []
    assert (lags_in(world.page()), unknown_in(world.page())) == ({}, 0)


async def test_groups_beyond_the_maximum_are_counted_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lags, "LAGS_MAX", 5)
    world = World()
    world.commit("first", 3, 1)
    world.commit("too large", 3, 1)
    world.commit("fits", 2, 1)
    world.leaders.silent = {TopicPartition("t", 1)}
    await world.lags.refresh()
    page = world.page()
    assert {group for group, _, _ in lags_in(page)} == {"first", "fits"}
    assert unknown_in(page) == 3 + 2
    del world.groups["first"]  # the group has moved to another coordinator
    assert {group for group, _, _ in lags_in(world.page())} == {"fits"}
