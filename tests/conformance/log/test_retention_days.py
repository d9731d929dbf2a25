"""Two simulated days of records, retention and failures, on whole brokers in memory."""

from __future__ import annotations

import asyncio

import pytest
from support.clusters import days
from support.clusters.days import HOUR, SECOND, STEPS
from support.forms import seeds
from support.storage.logs import read_all

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.kafka.records.batch import build, records
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.storage.replication.partition import Partition

KEPT_MS = 6 * HOUR
SEGMENT_MS = HOUR
BATCH = len(build([Record(timestamp=0, value=bytes(40))]))
KEPT_BYTES = 30 * BATCH
SEGMENT_BYTES = 5 * BATCH
AGED, SIZED = TopicPartition("aged", 0), TopicPartition("sized", 0)


class Reader:
    """A consumer that may lag. It resets `position` to the log start only after OFFSET_OUT_OF_RANGE."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.position = 0
        self.resets = 0

    async def read_to_end(self, days: Days) -> None:
        while True:
            try:
                fetched = await days.user.fetch(*self.tp, self.position, max_wait_ms=0)
            except KafkaError as error:
                await self._reset(days, error.code)
                continue
            if not fetched.records:
                assert self.position == fetched.high_watermark
                return
            for record in fetched.records:
                assert record.offset == self.position, "a hole that nobody announced"
                assert record.value == days.written[self.tp][record.offset][1]
                self.position += 1

    async def _reset(self, days: Days, code: ErrorCode) -> None:
        assert code == ErrorCode.OFFSET_OUT_OF_RANGE
        earliest = (await days.user.list_offsets(self.tp.topic, "earliest"))[0]
        assert earliest > self.position
        self.position, self.resets = earliest, self.resets + 1


class Days(days.Days):
    """Two simulated days. `written`: the (timestamp, value) of each record, by partition and then by offset."""

    def __init__(self, cluster: MemoryCluster, user: Client, seed: int) -> None:
        super().__init__(cluster, user, seed)
        self.ends = {AGED: 0, SIZED: 0}
        self.written: dict[TopicPartition, dict[int, tuple[int, bytes]]] = {AGED: {}, SIZED: {}}
        self.readers = [Reader(AGED), Reader(SIZED)]
        self.laggards = [Reader(AGED), Reader(SIZED)]
        self.leaders: set[int] = set()

    async def step(self, number: int) -> None:
        await self.advance(number)
        await asyncio.gather(self.produce(), self.maybe_break_one())
        await self.settle()
        for tp in self.written:
            self.check(tp)
        for reader in self.readers:
            await reader.read_to_end(self)
        if number % 48 == 47:  # twice a day
            for reader in self.laggards:
                await reader.read_to_end(self)

    async def produce(self) -> None:
        for tp, written in self.written.items():
            for _ in range(self.chance.randrange(4)):
                late = self.chance.choice([0, 0, 0, 0, -3 * HOUR, HOUR // 2])
                timestamp = self.cluster.clock.wall_ms() + late
                value = b"%040d" % self.chance.randrange(10**9)
                (done,) = await self.user.produce(
                    tp.topic, [Record(timestamp=timestamp, value=value)], partition=0
                )
                assert done.offset not in written
                written[done.offset] = (timestamp, value)
                self.ends[tp] += 1

    def check(self, tp: TopicPartition) -> None:
        leader, *others = self.replicas(tp)
        self.leaders.add(leader.broker_id)
        for replica in (leader, *others):
            self.check_bounds(tp, replica)
            self.check_records(tp, replica)
        assert all(other.log.log_start_offset >= leader.log.log_start_offset for other in others), (
            "followers follow"
        )

    def check_bounds(self, tp: TopicPartition, replica: Partition) -> None:
        """Check that the log has all records within its retention limit, and no segment that is beyond the limit."""
        log, now = replica.log, self.cluster.clock.wall_ms()
        first = log.segments[log.segments.count_below(log.log_start_offset)]
        is_empty = log.log_start_offset == log.log_end_offset
        if tp == AGED:
            young = [offset for offset, (at, _) in self.written[tp].items() if at >= now - KEPT_MS]
            assert log.log_start_offset <= min(young, default=log.log_end_offset)
            assert is_empty or first.largest_timestamp() >= now - KEPT_MS - 10 * SECOND
        else:
            assert is_empty or log.size >= min(KEPT_BYTES, len(self.written[tp]) * BATCH)
            assert log.size < KEPT_BYTES + SEGMENT_BYTES

    def check_records(self, tp: TopicPartition, replica: Partition) -> None:
        log = replica.log
        found = {r.offset: (r.timestamp, r.value) for r in records(read_all(log))}
        for offset in range(log.log_start_offset, log.log_end_offset):
            assert found[offset] == self.written[tp][offset]


async def two_days(seed: int) -> None:
    keys = {
        "log_retention_check_interval_ms": SECOND,
        "log_initial_task_delay_ms": SECOND,
        "log_segment_delete_delay_ms": SECOND,
        "log_segment_bytes": SEGMENT_BYTES,
        "replica_lag_time_max_ms": 5 * SECOND,
    }
    async with MemoryCluster(3, **keys) as cluster, cluster.client() as user:
        brokers = {0: (0, 1, days.ABSENT)}
        aged = {"retention.ms": str(KEPT_MS), "segment.ms": str(SEGMENT_MS)}
        sized = {"retention.bytes": str(KEPT_BYTES), "retention.ms": "-1"}
        await user.create_topics(
            NewTopic(AGED.topic, configs=aged, assignment=brokers),
            NewTopic(SIZED.topic, configs=sized, assignment=brokers),
        )
        lived = Days(cluster, user, seed)
        for number in range(STEPS):
            await lived.step(number)
        assert min(lived.ends.values()) > 200
        assert len(lived.leaders) > 1
        assert [reader.resets for reader in lived.readers] == [0, 0]
        assert all(reader.resets >= 3 for reader in lived.laggards)
        for tp in lived.written:
            for broker, names in lived.names(tp):
                assert len(names) < 60, (broker, names)


@pytest.mark.parametrize("seed", [1 + seed for seed in seeds(1, 2)])
def test_logs_stay_within_their_retention_bounds_during_two_days(seed: int) -> None:
    run_seeded(seed, two_days(seed))
