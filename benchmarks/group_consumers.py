"""Two loads with librdkafka consumers: a third member joins a group, and a group of one member reads a topic."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Final

from confluent_kafka import Consumer, TopicPartition

from benchmarks.closed_loop import LoadError

PARTITIONS: Final = 6
MEMBERS: Final = 3
WAIT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.001
BATCH: Final = 10_000


class Watched:
    """A consumer that records whether it has read a record since the last assignment."""

    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.assigned: list[TopicPartition] = []
        self.has_read = False
        self.consumer = Consumer(settings(bootstrap, group))
        self.consumer.subscribe([topic], on_assign=self._assign, on_revoke=self._revoke)

    def poll(self) -> None:
        """Serve callbacks and read at most one record."""
        message = self.consumer.poll(POLL_SECONDS)
        if message is not None and message.error() is None:
            self.has_read = True

    def reads_share(self, members: int) -> bool:
        """True if this consumer has its share of the partitions and has read a record since the last assignment."""
        return self.has_read and len(self.assigned) == PARTITIONS // members

    def _assign(self, _: Any, partitions: list[TopicPartition]) -> None:
        self.assigned, self.has_read = partitions, False

    def _revoke(self, *_: Any) -> None:
        self.assigned, self.has_read = [], False


def settings(bootstrap: str, group: str) -> dict[str, Any]:
    """Return the settings of a consumer that reads from the start of the topic after each assignment."""
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "heartbeat.interval.ms": 100,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }


def third_joins(bootstrap: str, group: str, topic: str) -> float:
    """Add three members to a group one after the other. Return the seconds that the third join takes.

    Measured from the start of the third member until each of the three members has read a record after the rebalance.
    """
    members: list[Watched] = []
    try:
        while len(members) < MEMBERS:
            began = time.perf_counter()
            members.append(Watched(bootstrap, group, topic))
            wait_until_all_read(members)
        return time.perf_counter() - began
    finally:
        for member in members:
            member.consumer.close()


def wait_until_all_read(members: Sequence[Watched]) -> None:
    """Poll until each member has read from its share of the partitions. Raises LoadError."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not all(member.reads_share(len(members)) for member in members):
        if time.monotonic() > deadline:
            raise LoadError(
                f"not all {len(members)} members have read records after {WAIT_SECONDS:g} s"
            )
        for member in members:
            member.poll()


def read_all(bootstrap: str, group: str, topic: str, records: int) -> float:
    """Read a topic with a group of one member, and return the records per second. Raises LoadError.

    The time is measured from the first record to the last record.
    """
    consumer = Consumer(settings(bootstrap, group))
    consumer.subscribe([topic])
    deadline = time.monotonic() + WAIT_SECONDS
    read = 0
    try:
        while read < records:
            messages = consumer.consume(BATCH if read else 1, 100 * POLL_SECONDS)
            if messages and not read:
                began = time.perf_counter()
            read += len(messages)
            if time.monotonic() > deadline:
                raise LoadError(f"{read} of {records} records were read after {WAIT_SECONDS:g} s")
        return (read - 1) / (time.perf_counter() - began)
    finally:
        consumer.close()
