"""Two simulated days of updates, compaction and failures, on whole brokers in memory."""

from __future__ import annotations

import asyncio

from support.clusters import days
from support.clusters.days import HOUR, MINUTE, SECOND, STEP, STEPS
from support.storage.logs import read_all

from minikafka.base.model import TopicPartition
from minikafka.client import Client, NewTopic, Record
from minikafka.kafka.records.batch import records
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.storage.replication.partition import Partition

KEYED, AGED = TopicPartition("keyed", 0), TopicPartition("aged", 0)
"""A compacted partition, and a partition with compaction and a retention of `KEPT_MS`."""
OFTEN = [b"often-%d" % number for number in range(6)]
RARELY = [b"rarely-%d" % number for number in range(80)]
"""Keys that get about one record in two days, so that their delete markers expire before the next record."""
SEGMENT_MS = HOUR
MIN_LAG_MS = 2 * HOUR
MAX_LAG_MS = 6 * HOUR
MARKER_MS = 10 * HOUR
KEPT_MS = 12 * HOUR
LATE_MS = STEP + MINUTE
"""Maximum delay after the due time: due work is done at the next step."""
CLEANED_MS = MAX_LAG_MS + SEGMENT_MS + LATE_MS
"""Age by which every record has been through a cleaning."""
DELETE_DELAY_MS = 2 * SECOND


class Days(days.Days):
    """Two simulated days. `written` has the (timestamp, key, value) of each record, by partition and then by offset."""

    def __init__(self, cluster: MemoryCluster, user: Client, seed: int) -> None:
        super().__init__(cluster, user, seed)
        self.ends = {KEYED: 0, AGED: 0}
        self.written: dict[TopicPartition, list[tuple[int, bytes, bytes | None]]] = {
            KEYED: [],
            AGED: [],
        }
        self.removed = 0
        self.markers_removed = 0

    async def step(self, number: int) -> None:
        await self.advance(number)
        await asyncio.gather(self.produce(), self.maybe_break_one())
        await self.settle()
        await self.cluster.clock.sleep(2 * DELETE_DELAY_MS)
        for tp in self.written:
            for replica in self.replicas(tp):
                self.check(tp, replica)
        for broker in self.cluster.brokers.values():
            assert broker.cleaner.uncleanable == {}

    async def produce(self) -> None:
        for tp, written in self.written.items():
            for _ in range(self.chance.randrange(1, 5)):
                key = self.chance.choice([*OFTEN, self.chance.choice(RARELY)])
                value = None if self.chance.random() < 0.3 else b"%d" % len(written)
                timestamp = self.cluster.clock.wall_ms()
                record = Record(timestamp=timestamp, key=key, value=value)
                (done,) = await self.user.produce(tp.topic, [record], partition=0)
                assert done.offset == len(written)
                written.append((timestamp, key, value))
                self.ends[tp] += 1

    def check(self, tp: TopicPartition, replica: Partition) -> None:
        written, log = self.written[tp], replica.log
        found = {r.offset: (r.timestamp, r.key, r.value) for r in records(read_all(log))}
        assert all(found[offset] == written[offset] for offset in found)
        last = {key: offset for offset, (_, key, _) in enumerate(written)}
        for offset in range(log.log_start_offset, len(written)):
            away_ms = 24 * HOUR if replica.broker_id == days.ABSENT else 0
            self.check_record(tp, offset, written, last, away_ms, is_there=offset in found)
        if tp == KEYED:
            assert log.log_start_offset == 0
        else:
            self.check_retention(replica, last)
        suffixes = {name.rpartition(".")[2] for name in self.files(tp, replica.broker_id)}
        assert not suffixes & {"deleted", "cleaned", "swap"}

    def check_retention(self, replica: Partition, last: dict[bytes, int]) -> None:
        """Check that retention removed only old records, and kept no segment whose records are all old."""
        log, now = replica.log, self.cluster.clock.wall_ms()
        gone = [self.written[AGED][at] for at in last.values() if at < log.log_start_offset]
        first = log.segments[log.segments.count_below(log.log_start_offset)]
        assert all(at < now - KEPT_MS for at, _, value in gone if value is not None)
        latest = first.largest_timestamp()
        assert latest == -1 or latest >= now - KEPT_MS - LATE_MS

    def check_record(
        self,
        tp: TopicPartition,
        offset: int,
        written: list[tuple[int, bytes, bytes | None]],
        last: dict[bytes, int],
        away_ms: int,
        *,
        is_there: bool,
    ) -> None:
        """Check that replaced records and old delete markers are removed neither too late nor too early.

        `away_ms`: time for which the broker was down and could not clean. If a delete marker was written and removed
        during that time, the broker keeps the deleted record, as in Kafka (`delete.retention.ms`).
        """
        now = self.cluster.clock.wall_ms()
        at, key, value = written[offset]
        is_last = last[key] == offset
        is_due_marker = value is None and now - at >= MIN_LAG_MS + MARKER_MS
        if now - at < MIN_LAG_MS or (is_last and value is not None):
            assert is_there, (tp, offset)
        elif is_last:
            assert is_there or is_due_marker, (tp, offset)
            assert not is_there or now - at <= 2 * CLEANED_MS + MARKER_MS + away_ms, (tp, offset)
            self.markers_removed += not is_there
        else:
            successor = next(o for o in range(offset + 1, len(written)) if written[o][1] == key)
            is_replaced = now - written[successor][0] >= MIN_LAG_MS
            assert is_there or is_replaced or is_due_marker, (tp, offset)
            is_late = is_there and now - written[last[key]][0] > CLEANED_MS
            assert not is_late or (away_ms and written[last[key]][2] is None), (tp, offset)
            self.removed += not is_there

    def files(self, tp: TopicPartition, broker: int) -> list[str]:
        return dict(self.names(tp))[broker]


async def two_days(seed: int) -> None:
    keys = {
        "log_cleaner_backoff_ms": SECOND,
        "log_retention_check_interval_ms": SECOND,
        "log_initial_task_delay_ms": SECOND,
        "log_segment_delete_delay_ms": DELETE_DELAY_MS,
        "replica_lag_time_max_ms": 5 * SECOND,
    }
    async with MemoryCluster(3, **keys) as cluster, cluster.client() as user:
        brokers = {0: (0, 1, days.ABSENT)}
        settings = {
            "cleanup.policy": "compact",
            "segment.ms": str(SEGMENT_MS),
            "min.cleanable.dirty.ratio": "0.9",
            "min.compaction.lag.ms": str(MIN_LAG_MS),
            "max.compaction.lag.ms": str(MAX_LAG_MS),
            "delete.retention.ms": str(MARKER_MS),
        }
        aged = {
            **settings,
            "cleanup.policy": "compact,delete",
            "retention.ms": str(KEPT_MS),
            "segment.bytes": "1500",
        }
        await user.create_topics(
            NewTopic(KEYED.topic, configs=settings, assignment=brokers),
            NewTopic(AGED.topic, configs=aged, assignment=brokers),
        )
        lived = Days(cluster, user, seed)
        for number in range(STEPS):
            await lived.step(number)
        assert min(lived.ends.values()) > 400
        assert all(each.log.log_start_offset > 100 for each in lived.replicas(AGED))
        assert lived.removed > 1_000
        assert lived.markers_removed > 100


def test_compaction_removes_records_neither_early_nor_late_during_two_days() -> None:
    run_seeded(1, two_days(1))
