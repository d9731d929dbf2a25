"""The checks of the copies that `copy_job.py` made: a read as read_committed, and a comparison with the input."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from copy_job import transform
from transactional_client import retry

from minikafka.checks.histories import Recorder

Records = dict[int, list[tuple[int, bytes]]]
"""By partition, the offset and the value of each record."""
ADMIN_SECONDS = 15.0
SETTLE_SECONDS = 90.0
"""Time limit for the end of all transactions, also of those that have to time out."""
READ_SECONDS = 30.0
FETCH_RECORDS = 1_000
FETCH_SECONDS = 0.1
STALLED_SECONDS = 90.0
"""Maximum time without a copy after the last fault."""


class Topics:
    """The offsets and records of topics, as unmodified clients read them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})

    def ends(self, topic: str, count: int, isolation: IsolationLevel) -> dict[int, int]:
        """Return the last stable offsets or the high watermarks of a topic. Raises KafkaException."""
        wanted = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(count)}
        found = self._admin.list_offsets(
            wanted, isolation_level=isolation, request_timeout=ADMIN_SECONDS
        )
        return {place.partition: int(future.result().offset) for place, future in found.items()}

    def settled(self, topic: str, count: int) -> dict[int, int]:
        """Wait until no transaction is open in the topic, and return its ends.

        Raises RuntimeError if a transaction holds back a partition for `SETTLE_SECONDS`.
        """
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            stable = self.ends(topic, count, IsolationLevel.READ_COMMITTED)
            ends = self.ends(topic, count, IsolationLevel.READ_UNCOMMITTED)
            if stable == ends:
                return ends
            if time.monotonic() > deadline:
                stuck = [
                    f"{topic}-{number} at {stable[number]} of {end}"
                    for number, end in ends.items()
                    if stable[number] < end
                ]
                raise RuntimeError(f"open transactions hold back {', '.join(stuck)}")
            time.sleep(0.2)

    def read(self, topic: str, ends: Mapping[int, int], recorder: Recorder) -> Records:
        """Read all committed records below `ends`. Raises TimeoutError, KafkaException."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "reader",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "log_level": 2,
            }
        )
        records: Records = {number: [] for number in ends}
        try:
            for number in ends:
                recorder.seek(topic, number, 0)
            consumer.assign([TopicPartition(topic, number, 0) for number in ends])
            for place, offset, value in _until_eof(consumer, ends):
                if value is None:
                    recorder.reached(topic, place, offset)
                else:
                    recorder.read(topic, place, offset, value)
                    records[place].append((offset, value))
        finally:
            consumer.close()
        return records

    def wait_until_copied(
        self, group: str, topic: str, source: Records, on_progress: Callable[[int, int], None]
    ) -> None:
        """Wait until the group has committed every record. Raises RuntimeError if it makes no progress."""
        wanted = {number: records[-1][0] + 1 for number, records in source.items() if records}
        consumer = Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": group, "log_level": 2}
        )
        before, deadline = -1, 0.0
        try:
            while True:
                places = [TopicPartition(topic, number) for number in wanted]
                found = {one.partition: one.offset for one in retry(consumer.committed, places)}
                done = sum(min(max(found[number], 0), end) for number, end in wanted.items())
                on_progress(done, sum(wanted.values()))
                if done == sum(wanted.values()):
                    return
                if done > before:
                    before, deadline = done, time.monotonic() + STALLED_SECONDS
                elif time.monotonic() > deadline:
                    raise RuntimeError(f"no copy for {STALLED_SECONDS:g} s: {found} of {wanted}")
                time.sleep(0.2)
        finally:
            consumer.close()


def _until_eof(
    consumer: Consumer, ends: Mapping[int, int]
) -> Iterator[tuple[int, int, bytes | None]]:
    """Yield partition, offset and value of each record, and None as the value at the end of each partition."""
    left = {number for number, end in ends.items() if end > 0}
    deadline = time.monotonic() + READ_SECONDS
    while left:
        messages = consumer.consume(FETCH_RECORDS, FETCH_SECONDS)
        if messages:
            deadline = time.monotonic() + READ_SECONDS
        elif time.monotonic() > deadline:
            raise TimeoutError(f"no record for {READ_SECONDS:g} s, partitions {sorted(left)}")
        for message in messages:
            number = message.partition()
            error = message.error()
            if error is None:
                yield number, message.offset(), message.value()
            elif error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            elif number in left and message.offset() >= ends[number]:
                left.remove(number)
                yield number, message.offset(), None


def differences(source: Records, target: Records) -> list[str]:
    """Compare the copies with the records: a text for each partition with a difference."""
    problems = []
    for partition, records in source.items():
        expected = [transform(value) for _, value in records]
        found = [value for _, value in target[partition]]
        if expected != found:
            pairs = enumerate(zip(expected, found, strict=False))
            first = next(
                (at for at, (one, other) in pairs if one != other), min(len(expected), len(found))
            )
            missing, repeated = len(set(expected) - set(found)), len(found) - len(set(found))
            problems.append(
                f"partition {partition} has {len(found)} copies of {len(expected)} records, different"
                f" from number {first} on: {missing} are missing, {repeated} repeated"
            )
    return problems
