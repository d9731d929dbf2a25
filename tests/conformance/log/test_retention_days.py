"""Two days of records, retention and failures: whole brokers in memory, whose clocks are driven forward.

Each step is a quarter of an hour: records are produced, now and then a broker stops, is killed or comes back, and
retention runs. One broker is down for a day.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from support.logs import read_all
from support.memory_cluster import MemoryCluster
from support.seeded_loop import run_seeded

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.record.batch import build, records
from minikafka.replication.partition import Partition

SECOND, MINUTE, HOUR = 1_000, 60_000, 3_600_000
STEP = 15 * MINUTE
STEPS = 48 * HOUR // STEP
KEPT_MS = 6 * HOUR
SEGMENT_MS = HOUR
BATCH = len(build([Record(timestamp=0, value=bytes(40))]))
KEPT_BYTES = 30 * BATCH
SEGMENT_BYTES = 5 * BATCH
AGED, SIZED = TopicPartition("aged", 0), TopicPartition("sized", 0)
ABSENT = 2
"""The broker that is down from step `GONE` to step `BACK`, one day."""
GONE, BACK = 40, 40 + 24 * HOUR // STEP


class Reader:
    """A consumer that may lag. It reads from `position`, which goes back to the log start only when it is told to."""

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


class Days:
    """The cluster, and what was written: by partition and offset the timestamp and the value of each record."""

    def __init__(self, cluster: MemoryCluster, user: Client, seed: int) -> None:
        self.cluster = cluster
        self.user = user
        self.chance = Random(seed)
        self.written: dict[TopicPartition, dict[int, tuple[int, bytes]]] = {AGED: {}, SIZED: {}}
        self.readers = [Reader(AGED), Reader(SIZED)]
        self.laggards = [Reader(AGED), Reader(SIZED)]
        self.leaders: set[int] = set()

    async def step(self, number: int) -> None:
        self.cluster.clock.skipped_ms += STEP
        await self._come_and_go(number)
        fault = self.chance.choice([None, None, None, None, "stop", "kill"])
        await asyncio.gather(self.produce(), self.break_one(fault))
        await self.settle()
        for tp in self.written:
            self.check(tp)
        for reader in self.readers:
            await reader.read_to_end(self)
        if number % 48 == 47:  # twice a day
            for reader in self.laggards:
                await reader.read_to_end(self)

    async def _come_and_go(self, number: int) -> None:
        if number == GONE:
            await self.cluster.stop(ABSENT)
        elif number == BACK:
            await self.cluster.start(ABSENT)

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

    async def break_one(self, fault: str | None) -> None:
        """Stop or kill a broker in the middle of the step, and start it again."""
        if fault is None or ABSENT not in self.cluster.brokers:
            return
        await self.cluster.clock.sleep(self.chance.randrange(300))
        victim = self.chance.choice(list(self.cluster.brokers))
        if fault == "stop":
            await self.cluster.stop(victim)
        else:
            self.cluster.kill(victim)
            self.cluster.ensemble.end_session(self.cluster.sessions[victim].session_id)
        await self.cluster.clock.sleep(self.chance.randrange(2000))
        await self.cluster.start(victim)

    def replicas(self, tp: TopicPartition) -> list[Partition]:
        """Return the partition on every broker that runs, the leader first."""
        found = [
            broker.replicas.partitions[tp]
            for broker in self.cluster.brokers.values()
            if tp in broker.replicas.partitions
        ]
        return sorted(found, key=lambda partition: not partition.is_leader)

    async def settle(self) -> None:
        """Wait until all running brokers are in sync and have run retention since."""
        async with asyncio.timeout(120):
            while not all(map(self.is_settled, self.written)):
                await self.cluster.clock.sleep(200)
        await self.cluster.clock.sleep(4 * SECOND)

    def is_settled(self, tp: TopicPartition) -> bool:
        leader, *others = self.replicas(tp)
        end = leader.log.log_end_offset
        return (
            leader.is_leader
            and leader.high_watermark == end == len(self.written[tp])
            and len(leader.isr) == len(others) + 1 == len(self.cluster.brokers)
            and all(other.log.log_end_offset == end for other in others)
        )

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
        """What is young enough is there, and what is too old or too much is gone."""
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
        brokers = {0: (0, 1, ABSENT)}
        aged = {"retention.ms": str(KEPT_MS), "segment.ms": str(SEGMENT_MS)}
        sized = {"retention.bytes": str(KEPT_BYTES), "retention.ms": "-1"}
        await user.create_topics(
            NewTopic(AGED.topic, configs=aged, assignment=brokers),
            NewTopic(SIZED.topic, configs=sized, assignment=brokers),
        )
        days = Days(cluster, user, seed)
        for number in range(STEPS):
            await days.step(number)
        assert min(len(written) for written in days.written.values()) > 200
        assert len(days.leaders) > 1
        assert [reader.resets for reader in days.readers] == [0, 0]
        assert all(reader.resets >= 3 for reader in days.laggards)
        for number, storage in cluster.storages.items():
            for tp in days.written:
                names = storage.names(f"/data/{tp}")
                assert len(names) < 60, (number, names)


@pytest.mark.parametrize("seed", [1, 2])
def test_logs_stay_within_their_bounds_for_two_days(seed: int) -> None:
    run_seeded(seed, two_days(seed))
