"""A program that copies a topic exactly once: reads committed records, and writes copies and offsets in transactions.

    copy_job.py BOOTSTRAP ID INPUT OUTPUT GROUP HISTORIES

It is an unmodified client of confluent-kafka that may be killed, paused and started again at any moment. Partition N
of INPUT is copied to partition N of OUTPUT. Jobs of one GROUP share the partitions, and each has its own
transactional ID. Each start writes a new history to the directory HISTORIES (docs/isolation.md).
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from transactional_client import CALL_SECONDS, TRANSACTION_TIMEOUT_MS, delivered, retry

from minikafka.checks.histories import Recorder

BATCH_RECORDS = 50
"""Maximum number of records in a transaction."""
POLL_SECONDS = 0.2
SESSION_TIMEOUT_MS = 6_000
STALLED_SECONDS = 30
"""The job ends by SIGALRM if it stands still for this time.

librdkafka 2.16 keeps the handle of a group coordinator that has left the metadata, and waits for it although
the coordinator is back.
"""


def transform(value: bytes) -> bytes:
    """Return the value of the copy of a record with this value."""
    return b"copy of " + value


class CopyJob:
    """One start of the program."""

    def __init__(
        self, bootstrap: str, name: str, topics: tuple[str, str], group: str, recorder: Recorder
    ) -> None:
        self._input, self._output = topics
        self._group = group
        self._history = recorder
        self._stopped = False
        common = {"bootstrap.servers": bootstrap, "reconnect.backoff.max.ms": 500, "log_level": 3}
        self._producer = Producer(
            common
            | {
                "transactional.id": name,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 5,
            }
        )
        self._consumer = Consumer(
            common
            | {
                "group.id": group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": 500,
                "topic.metadata.refresh.interval.ms": 2_000,
            }
        )

    def stop(self, *_: object) -> None:
        """Let `run` return after the current transaction."""
        self._stopped = True

    def run(self) -> None:
        """Copy until `stop` is called. Raises KafkaException after an error that only a new start can end."""
        signal.alarm(STALLED_SECONDS)
        retry(self._producer.init_transactions)
        self._consumer.subscribe([self._input], on_assign=self._start_reading)
        while not self._stopped:
            signal.alarm(STALLED_SECONDS)
            messages = [
                message
                for message in self._consumer.consume(BATCH_RECORDS, POLL_SECONDS)
                if self._is_record(message)
            ]
            if messages:
                self._copy(messages)
        self._consumer.close()

    @staticmethod
    def _is_record(message: Message) -> bool:
        error = message.error()
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise KafkaException(error)
        return error is None

    def _start_reading(self, consumer: Consumer, partitions: Iterable[TopicPartition]) -> None:
        """Read from the committed offsets, which are the only memory of the job."""
        starts = self._committed(list(partitions))
        consumer.assign(starts)

    def _committed(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        found = retry(self._consumer.committed, partitions) if partitions else []
        starts = [TopicPartition(one.topic, one.partition, max(one.offset, 0)) for one in found]
        for start in starts:
            self._history.seek(start.topic, start.partition, start.offset)
        return starts

    def _copy(self, messages: list[Message]) -> None:
        """Copy the records in one transaction. If it has to be aborted, the records will be read again."""
        number = self._history.begin()
        self._producer.begin_transaction()
        self._history.ended(number)
        try:
            self._write(messages)
            self._send_offsets(messages)
            self._commit()
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self._abort()

    def _write(self, messages: list[Message]) -> None:
        for message in messages:
            place = message.topic(), message.partition()
            self._history.read(*place, message.offset(), message.value())
            value = transform(message.value())
            number = self._history.write(self._output, value, message.partition())
            self._producer.produce(
                self._output,
                value,
                message.key(),
                message.partition(),
                on_delivery=partial(delivered, self._history, number),
            )
            self._producer.poll(0)

    def _send_offsets(self, messages: list[Message]) -> None:
        positions = {message.partition(): message.offset() + 1 for message in messages}
        offsets = [TopicPartition(self._input, *position) for position in positions.items()]
        numbers = [
            self._history.offsets(self._group, self._input, *position)
            for position in positions.items()
        ]
        member = self._consumer.consumer_group_metadata()
        retry(self._producer.send_offsets_to_transaction, offsets, member)
        for number in numbers:
            self._history.ended(number)

    def _commit(self) -> None:
        self._producer.flush(CALL_SECONDS)
        number = self._history.commit()
        retry(self._producer.commit_transaction)
        self._history.ended(number)

    def _abort(self) -> None:
        number = self._history.abort()
        retry(self._producer.abort_transaction)
        self._history.ended(number)
        for start in self._committed(self._consumer.assignment()):
            self._consumer.seek(start)


def main(bootstrap: str, name: str, source: str, target: str, group: str, histories: str) -> None:
    """Run the job until SIGTERM."""
    client = f"{name}.{os.getpid()}"
    with (Path(histories) / f"{client}.jsonl").open("w", buffering=1, encoding="utf-8") as history:
        recorder = Recorder(client, name, history.write, time.monotonic)
        job = CopyJob(bootstrap, name, (source, target), group, recorder)
        signal.signal(signal.SIGTERM, job.stop)
        job.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
