"""An unmodified confluent-kafka producer and consumer that record what was acknowledged and read.

Used by quickstart, chaos and spark-deaths. Invariant: a record counts as acked only after a delivery report without
an error. After a report with an error, the outcome of the record is unknown, because librdkafka does not say whether
the broker has the record.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from minikafka.checks.delivery import History, Payload, Reading
from minikafka.checks.histories import Event, line_of

REPLICATION_FACTOR = 3
ADMIN_SECONDS = 30.0
POLL_SECONDS = 0.05
CONSUME_SECONDS = 0.2
"""Maximum time to collect records. At the end of a partition, fewer records come."""
FETCH_SECONDS = 30.0
END_LOOK_SECONDS = 5.0
END_SECONDS = 10.0
FETCH_RECORDS = 10_000
DELIVERY_TIMEOUT_MS = 120_000
Login = Mapping[str, Any]
"""The settings of librdkafka with which a client logs in; empty for a cluster without security."""
NO_LOGIN: Login = {}


class Stream(threading.Thread):
    """A thread with an idempotent producer (acks=all), which sends at most `rate` records per second.

    Callers can read `history` and `acked` at any time, but `error` only after `join()`.
    """

    PACE_EVERY = 500
    """Number of records after which the thread waits, to keep to the rate."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        records: Iterable[tuple[bytes, bytes]],
        rate: float,
        login: Login = NO_LOGIN,
    ) -> None:
        super().__init__(name="stream", daemon=True)
        self.history = History()
        self.acked = 0
        self.error: Exception | None = None
        self.first_ack_after: dict[int, float] = {}
        self._records = records
        self._rate = rate
        self._topic = topic
        self._stopped = threading.Event()
        self._marked_at = 0.0
        self._marked_from = -1
        self._producer = Producer(
            {
                **login,
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 10,
                "message.timeout.ms": DELIVERY_TIMEOUT_MS,
                "queue.buffering.max.messages": 50_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 2,
            }
        )

    def mark(self, moment: float) -> None:
        """Start to measure `first_ack_after`: by partition, the seconds from `moment` to the first ack of a new record.

        `moment`: a monotonic time in seconds. A record is new if it is sent after this call.
        """
        self._marked_at = moment
        self.first_ack_after = {}
        self._marked_from = len(self.history)

    def set_password(self, user: str, password: str) -> None:
        """Log in with this password from the next connection on."""
        self._producer.set_sasl_credentials(user, password)

    def stop(self) -> None:
        """Stop sending new records. Queued records are still delivered."""
        self._stopped.set()

    def abandon(self) -> None:
        """Drop unacked records, whose outcome stays unknown. Wait at most `END_SECONDS` until the thread ends."""
        self._stopped.set()
        self._producer.purge()
        self.join(END_SECONDS)

    def run(self) -> None:
        """Run the thread: send all records and wait for their delivery reports."""
        try:
            self._send_all()
            self._producer.flush()
        except Exception as error:  # noqa: BLE001 - read by the caller after join()
            self.error = error

    def _send_all(self) -> None:
        started = time.monotonic()
        for count, (key, value) in enumerate(self._records, 1):
            if self._stopped.is_set():
                return
            ticket = self.history.sent((key, value))
            self._send(key, value, partial(self._on_report, ticket))
            if count % self.PACE_EVERY == 0:
                self._serve_until(started + count / self._rate)

    def _serve_until(self, moment: float) -> None:
        """Process delivery reports until `moment`. Reports that are already queued are always processed."""
        left = 0.0
        while left >= 0 and not self._stopped.is_set():
            self._producer.poll(min(left, POLL_SECONDS))
            left = moment - time.monotonic()

    def _send(
        self, key: bytes, value: bytes, report: Callable[[KafkaError | None, Message], None]
    ) -> None:
        while not self._stopped.is_set():
            try:
                self._producer.produce(self._topic, value, key, on_delivery=report)
            except BufferError:
                self._producer.poll(POLL_SECONDS)
            else:
                return

    def _on_report(self, ticket: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            return
        partition = message.partition()
        self.history.acked(ticket, partition, message.offset())
        self.acked += 1
        if 0 <= self._marked_from <= ticket and partition not in self.first_ack_after:
            self.first_ack_after[partition] = time.monotonic() - self._marked_at


def create_topic(
    bootstrap: str, topic: str, partitions: int, config: dict[str, str], login: Login = NO_LOGIN
) -> None:
    """Create a topic with replication factor 3. Raises KafkaException."""
    admin = AdminClient({**login, "bootstrap.servers": bootstrap, "log_level": 2})
    wanted = NewTopic(topic, partitions, REPLICATION_FACTOR, config=config)
    for created in admin.create_topics([wanted]).values():
        created.result(ADMIN_SECONDS)


def key_and_value(message: Message) -> Payload:
    """Return the key and the value of a message."""
    return message.key(), message.value()


def read_back(
    bootstrap: str,
    topic: str,
    partitions: int,
    on_progress: Callable[[int, int], None],
    content: Callable[[Message], Payload] = key_and_value,
    login: Login = NO_LOGIN,
) -> Reading:
    """Read all committed records of the topic below the high watermarks with an unmodified consumer.

    `content`: returns the part of a message to keep. `on_progress`: called with the number of records read and
    the total number of records. Raises KafkaException, TimeoutError.
    """
    consumer = Consumer(
        {
            **login,
            "bootstrap.servers": bootstrap,
            "group.id": "quickstart",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.queue.backoff.ms": 5,
            "log_level": 2,
        }
    )
    try:
        return _read_all(consumer, topic, partitions, on_progress, content)
    finally:
        consumer.close()


def high_watermark(consumer: Consumer, partition: TopicPartition) -> int:
    """Return the partition's high watermark. Raises KafkaException.

    librdkafka takes the leader from cached metadata, and fails if this leader is unknown, has moved or is down. So
    this function refreshes the metadata between attempts.
    """
    deadline = time.monotonic() + FETCH_SECONDS
    while True:
        try:
            return int(consumer.get_watermark_offsets(partition, timeout=END_LOOK_SECONDS)[1])
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_SECONDS)
            with suppress(KafkaException):
                consumer.list_topics(partition.topic, END_LOOK_SECONDS)


def _read_all(
    consumer: Consumer,
    topic: str,
    partitions: int,
    on_progress: Callable[[int, int], None],
    content: Callable[[Message], Payload],
) -> Reading:
    starts = [TopicPartition(topic, partition, 0) for partition in range(partitions)]
    ends = [high_watermark(consumer, start) for start in starts]
    reading: dict[int, list[tuple[int, Payload]]] = {p: [] for p in range(partitions)}
    unread = {partition for partition, end in enumerate(ends) if end}
    total, count = sum(ends), 0
    consumer.assign(starts)
    heard = time.monotonic()
    while unread:
        messages = consumer.consume(FETCH_RECORDS, CONSUME_SECONDS)
        heard = time.monotonic() if messages else heard
        if time.monotonic() - heard > FETCH_SECONDS:
            got = [f"{topic}-{p} {len(reading[p])} of {end}" for p, end in enumerate(ends)]
            raise TimeoutError(f"no record for {FETCH_SECONDS:g} s; read {', '.join(got)}")
        for message in messages:
            partition = message.partition()
            if message.error() is None:
                reading[partition].append((message.offset(), content(message)))
                count += 1
            elif message.error().code() != KafkaError._PARTITION_EOF:
                raise KafkaException(message.error())
            elif message.offset() >= ends[partition]:
                unread.discard(partition)
        if messages:
            on_progress(count, total)
    return reading


def write_history(path: Path, events: Iterable[Event]) -> None:
    """Write the history of a client, for `minikafka pipeline check` and `minikafka verdict`."""
    with path.open("w", encoding="utf-8") as file:
        file.writelines(map(line_of, events))
