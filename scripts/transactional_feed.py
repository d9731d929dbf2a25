"""A producer that fills a topic with transactions, of which it aborts some, and records their history.

The topic is the input of `copy_job.py` in the chaos test. Invariant: each value is sent at most once.
"""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException, Producer
from transactional_client import CALL_SECONDS, TRANSACTION_TIMEOUT_MS, delivered, retry

from minikafka.checks.histories import Recorder

RECORDS_MAX = 30
"""Maximum number of records in a transaction."""
ABORTED = 0.25
"""The fraction of transactions that are aborted on purpose."""
VALUE_BYTES = 50


class Feed(threading.Thread):
    """A thread with a transactional producer. After a fatal error, the next producer has the same transactional ID."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, rate: float, seed: int, histories: Path
    ) -> None:
        super().__init__(name="feed", daemon=True)
        self.sent = 0
        self.committed = 0
        """Number of records in acknowledged transactions."""
        self.restarts = 0
        self.error: Exception | None = None
        self._servers = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._rate = rate
        self._chance = random.Random(seed)
        self._histories = histories
        self._ended = threading.Event()

    def stop(self) -> None:
        """Stop after the current transaction."""
        self._ended.set()

    def run(self) -> None:
        """Run the thread."""
        while not self._ended.is_set():
            try:
                self._run_producer()
            except KafkaException:
                self.restarts += 1
                self._ended.wait(0.5)
            except Exception as error:  # noqa: BLE001 - read by the caller after join()
                self.error = error
                return

    def _run_producer(self) -> None:
        client = f"feed.{self.restarts}"
        with (self._histories / f"{client}.jsonl").open("w", encoding="utf-8", buffering=1) as file:
            recorder = Recorder(client, "feed", file.write, time.monotonic)
            producer = Producer(
                {
                    "bootstrap.servers": self._servers,
                    "transactional.id": "feed",
                    "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                    "linger.ms": 5,
                    "reconnect.backoff.max.ms": 500,
                    "log_level": 2,
                }
            )
            retry(producer.init_transactions)
            while not self._ended.is_set():
                self._transaction(producer, recorder)

    def _transaction(self, producer: Producer, recorder: Recorder) -> None:
        number = recorder.begin()
        producer.begin_transaction()
        recorder.ended(number)
        count = self._chance.randint(1, RECORDS_MAX)
        aborts = self._chance.random() < ABORTED
        try:
            self._write(producer, recorder, count)
            if not aborts:
                producer.flush(CALL_SECONDS)
                number = recorder.commit()
                retry(producer.commit_transaction)
                recorder.ended(number)
                self.committed += count
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            aborts = True
        if aborts:
            number = recorder.abort()
            retry(producer.abort_transaction)
            recorder.ended(number)
        self._ended.wait(count / self._rate)

    def _write(self, producer: Producer, recorder: Recorder, count: int) -> None:
        for _ in range(count):
            self.sent += 1
            partition = self._chance.randrange(self._partitions)
            value = b"%d " % self.sent + bytes(VALUE_BYTES)
            number = recorder.write(self._topic, value, partition)
            report = partial(delivered, recorder, number)
            producer.produce(self._topic, value, None, partition, on_delivery=report)
            producer.poll(0)
