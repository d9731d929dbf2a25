"""What must survive a takeover in the logs themselves: compacted topics, and logs that begin later than at offset 0."""

from __future__ import annotations

from functools import partial
from typing import Final

from confluent_kafka import Producer
from kafka import TopicPartition as Place
from kafka.admin import OffsetSpec
from kafka_takeover_cluster import STEP_SECONDS, Promise, in_time, patiently
from transactional_client import retry

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS: Final = 40
DELETION_MS: Final = 20_000


class Compacted(Promise):
    """A compacted topic with keys that are no text, all codecs and control batches keeps the last value of each key."""

    TOPIC: Final = "compacted"

    def prepare(self) -> None:
        config = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01"}
        config |= {"segment_bytes": "16384", "segment_ms": "2000", "delete_retention_ms": "100"}
        self.cluster.create(self.TOPIC, **config)
        self._wanted: dict[bytes, bytes] = {}

    def before(self, turn: int) -> None:
        for codec in CODECS:
            key = b"\xff\x00" + codec.encode()
            records = {key + b"%d" % n: b"%d " % turn * 20 for n in range(KEYS)}
            self.cluster.write(self.TOPIC, records, compression_type=codec)
            self._wanted |= records
            self.cluster.write(self.TOPIC, {key + b"0": None}, compression_type=codec)
            del self._wanted[key + b"0"]
        producer = Producer(self.cluster.producer | {"transactional.id": "compacted"})
        retry(producer.init_transactions)
        for ending in (producer.abort_transaction, producer.commit_transaction):
            value = b"%d by %s" % (turn, ending.__name__.encode())
            producer.begin_transaction()
            producer.produce(self.TOPIC, value, b"\xfein a transaction", 0)
            producer.flush(STEP_SECONDS)
            retry(ending)
            self._wanted[b"\xfein a transaction"] = value

    def problems(self, turn: int, *, was_killed: bool) -> list[str]:
        return in_time(self._compare, was_killed=was_killed)

    def _compare(self) -> list[str]:
        found: dict[bytes, bytes] = {}
        for message in self.cluster.read(self.TOPIC):
            found[message.key()] = message.value()
        found = {key: value for key, value in found.items() if value is not None}
        keys = [
            key
            for key in self._wanted.keys() | found.keys()
            if self._wanted.get(key) != found.get(key)
        ]
        return [
            f"compacted: {key!r}: {found.get(key)!r}, expected {self._wanted.get(key)!r}"
            for key in keys[:3]
        ]


class LogStarts(Promise):
    """Records that were deleted stay deleted, times of the broker stay, and the log goes on."""

    TOPIC: Final = "shortened"

    def prepare(self) -> None:
        self.cluster.create(self.TOPIC, message_timestamp_type="LogAppendTime")
        self._start = self._end = 0
        self._times: dict[int, tuple[int, int]] = {}

    def before(self, turn: int) -> None:
        self.cluster.write(self.TOPIC, {b"%d" % n: b"%d" % turn for n in range(10)})
        self._end += 10
        self._start = self._end - 5
        patiently(self._shorten)
        for message in self.cluster.read(self.TOPIC):
            self._times[message.offset()] = message.timestamp()

    def _shorten(self) -> None:
        with self.cluster.admin() as admin:
            admin.delete_records({Place(self.TOPIC, 0): self._start}, timeout_ms=DELETION_MS)

    def problems(self, turn: int, *, was_killed: bool) -> list[str]:
        place = Place(self.TOPIC, 0)
        with self.cluster.admin() as admin:
            asked = partial(admin.list_partition_offsets, {place: OffsetSpec.EARLIEST})
            start = patiently(asked)[place].offset
        found = []
        # Kafka checkpoints the starts once a minute: after a kill, the last deletion may have to be repeated.
        if start != self._start and not (was_killed and start < self._start):
            found.append(f"shortened begins at {start}, expected {self._start}")
        return found + in_time(self._compare, was_killed=was_killed)

    def _compare(self) -> list[str]:
        read = {m.offset(): m.timestamp() for m in self.cluster.read(self.TOPIC)}
        wanted = {offset: self._times[offset] for offset in range(self._start, self._end)}
        later = {offset: time for offset, time in read.items() if offset >= self._start}
        return [] if later == wanted else [f"shortened: {later}, expected {wanted}"]
