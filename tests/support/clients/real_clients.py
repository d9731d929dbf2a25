"""Unmodified Kafka clients as writers and readers that keep a history: confluent-kafka, aiokafka, kafka-python, kcat.

A writer sends records "0", "1", … until it is stopped, and then waits for the outcome of the records in flight. kcat
does not report the offsets of its records: their history has acknowledgements at an unknown offset.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, Self

import aiokafka
import kafka
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition

from minikafka.checks.delivery import History, Reading
from scripts.load import high_watermark

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PAUSE_SECONDS = 0.02
"""Time between two records of a writer: up to 20 writers share the processors with the brokers."""
END_SECONDS = 60.0
"""Maximum time in seconds for a writer to end, and for a reader to get its next records."""


class Client(Protocol):
    """The writer and the reader of one client library."""

    name: str

    def codecs(self) -> tuple[str, ...]:
        """Return the compression codecs that the installed client can write and read."""

    def write(self, bootstrap: str, topic: str, codec: str, stop: threading.Event) -> History:
        """Send records until `stop` is set; return after every record is acknowledged, has failed or is given up."""

    def read(self, bootstrap: str, topic: str, partitions: int) -> Reading:
        """Return every record that can be read now."""


def _compression(codec: str) -> str | None:
    """Return the codec's name as the pure Python clients expect it."""
    return None if codec == "none" else codec


class ConfluentKafka:
    """confluent-kafka: librdkafka behind Python, with at most `in_flight` unanswered requests per broker.

    With more than one request in flight, an idempotent producer of librdkafka 2.16 keeps two CPU cores busy from the
    death of a leader until it knows the next leader. Writers with a codec therefore have only one request in flight.
    """

    name = "confluent-kafka"

    def __init__(self, in_flight: int = 5) -> None:
        self._in_flight = in_flight

    def codecs(self) -> tuple[str, ...]:
        return CODECS

    def write(self, bootstrap: str, topic: str, codec: str, stop: threading.Event) -> History:
        history = History()
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "compression.type": codec,
                "linger.ms": 5,
                "max.in.flight": self._in_flight if codec == "none" else 1,
            }
        )

        def report(ticket: int, error: Any, message: Any) -> None:
            if error is None:
                history.acked(ticket, message.partition(), message.offset())

        while not stop.is_set():
            value = b"%d" % len(history)
            ticket = history.sent(value)
            producer.produce(topic, value, on_delivery=partial(report, ticket))
            producer.poll(PAUSE_SECONDS)
        producer.flush(END_SECONDS)
        return history

    def read(self, bootstrap: str, topic: str, partitions: int) -> Reading:
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "t", "enable.auto.commit": False}
        )
        try:
            starts = [TopicPartition(topic, p, 0) for p in range(partitions)]
            ends = [high_watermark(consumer, start) for start in starts]
            consumer.assign(starts)
            reading: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(partitions)}
            left = sum(ends)
            while left:
                messages = consumer.consume(min(left, 1000), END_SECONDS)
                assert messages, f"{left} records never came"
                for message in messages:
                    assert message.error() is None, message.error()
                    reading[message.partition()].append((message.offset(), message.value()))
                left -= len(messages)
        finally:
            consumer.close()
        return reading


class Aiokafka:
    """aiokafka, in a separate event loop."""

    name = "aiokafka"

    def codecs(self) -> tuple[str, ...]:
        return CODECS

    def write(self, bootstrap: str, topic: str, codec: str, stop: threading.Event) -> History:
        return asyncio.run(self._write(bootstrap, topic, codec, stop))

    async def _write(
        self, bootstrap: str, topic: str, codec: str, stop: threading.Event
    ) -> History:
        history = History()
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            acks="all",
            compression_type=_compression(codec),
            retry_backoff_ms=100,
        )
        await producer.start()
        waiting = []
        try:
            while not stop.is_set():
                value = b"%d" % len(history)
                waiting.append((history.sent(value), await producer.send(topic, value)))
                await asyncio.sleep(PAUSE_SECONDS)
            async with asyncio.timeout(END_SECONDS):
                await producer.flush()
        finally:
            await producer.stop()
        for ticket, future in waiting:
            if future.done() and future.exception() is None:
                history.acked(ticket, future.result().partition, future.result().offset)
        return history

    def read(self, bootstrap: str, topic: str, partitions: int) -> Reading:
        return asyncio.run(self._read(bootstrap, topic, partitions))

    async def _read(self, bootstrap: str, topic: str, partitions: int) -> Reading:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="none")
        await consumer.start()
        try:
            everything = [AioPartition(topic, p) for p in range(partitions)]
            consumer.assign(everything)
            await consumer.seek_to_beginning(*everything)
            ends = await consumer.end_offsets(everything)
            reading: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(partitions)}
            left = sum(ends.values())
            async with asyncio.timeout(END_SECONDS):
                while left > 0:
                    for tp, found in (await consumer.getmany(timeout_ms=1000)).items():
                        reading[tp.partition] += [(r.offset, r.value) for r in found]
                        left -= len(found)
        finally:
            await stop_aiokafka(consumer)
        return reading


async def stop_aiokafka(consumer: aiokafka.AIOKafkaConsumer) -> None:
    """Stop a consumer and close its connections, even if the consumer is about to retry a fetch from a dead broker.

    In that case aiokafka 0.14.0 raises CancelledError from `stop` and leaves the connections open.
    """
    try:
        await consumer.stop()
    except asyncio.CancelledError:
        await consumer._client.close()


class KafkaPython:
    """kafka-python; with lz4, python-snappy and zstandard installed it has all codecs."""

    name = "kafka-python"

    def codecs(self) -> tuple[str, ...]:
        return CODECS

    def write(self, bootstrap: str, topic: str, codec: str, stop: threading.Event) -> History:
        history = History()
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            acks="all",
            compression_type=_compression(codec),
            linger_ms=5,
        )
        waiting = []
        try:
            while not stop.wait(PAUSE_SECONDS):
                value = b"%d" % len(history)
                waiting.append((history.sent(value), producer.send(topic, value)))
            producer.flush(END_SECONDS)
        finally:
            producer.close(END_SECONDS)
        for ticket, future in waiting:
            if future.succeeded():
                history.acked(ticket, future.value.partition, future.value.offset)
        return history

    def consumer(self, bootstrap: str) -> kafka.KafkaConsumer:
        """Return a consumer that reads the metadata again every second.

        Otherwise, after an election, `end_offsets` asks the former leader again and again until its timeout of 30 s.
        """
        return kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=1_000
        )

    def read(self, bootstrap: str, topic: str, partitions: int) -> Reading:
        consumer = self.consumer(bootstrap)
        try:
            everything = [kafka.TopicPartition(topic, p) for p in range(partitions)]
            consumer.assign(everything)
            ends = consumer.end_offsets(everything)
            reading: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(partitions)}
            left = sum(ends.values())
            while left > 0:
                found = consumer.poll(timeout_ms=int(END_SECONDS * 1000))
                assert found, f"{left} records never came"
                for tp, records in found.items():
                    reading[tp.partition] += [(r.offset, r.value) for r in records]
                    left -= len(records)
        finally:
            consumer.close()
        return reading


class Kcat:
    """kcat, the command-line client; it reports only whether everything was delivered."""

    name = "kcat"

    def codecs(self) -> tuple[str, ...]:
        return CODECS if shutil.which("kcat") else ()

    def write(self, bootstrap: str, topic: str, codec: str, stop: threading.Event) -> History:
        history = History()
        command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-z", codec]
        command += ["-X", "enable.idempotence=true", "-X", "acks=all", "-X", "linger.ms=5"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            assert child.stdin is not None
            while not stop.wait(PAUSE_SECONDS):
                value = b"%d" % len(history)
                history.sent(value)
                child.stdin.write(value + b"\n")
                child.stdin.flush()
            _, errors = child.communicate(timeout=END_SECONDS)
        if child.returncode == 0 and b"Delivery failed" not in errors:
            for ticket in range(len(history)):
                history.acked(ticket, -1, -1)
        return history

    def read(self, bootstrap: str, topic: str, partitions: int) -> Reading:
        command = ["kcat", "-C", "-b", bootstrap, "-t", topic, "-e", "-q", "-o", "beginning"]
        command += ["-f", "%p %o %s\n"]
        found = subprocess.run(command, capture_output=True, timeout=END_SECONDS, check=True)
        reading: dict[int, list[tuple[int, bytes]]] = {p: [] for p in range(partitions)}
        for line in found.stdout.splitlines():
            partition, offset, value = line.split(b" ", 2)
            reading[int(partition)].append((int(offset), value))
        return reading


CLIENTS: tuple[Client, ...] = (ConfluentKafka(), Aiokafka(), KafkaPython(), Kcat())


class Writing:
    """A client that writes in a separate thread until `finish` is called or the `with` block ends."""

    def __init__(self, client: Client, bootstrap: str, topic: str, codec: str) -> None:
        self._stop = threading.Event()
        self._outcome: list[History | Exception] = []
        write = partial(client.write, bootstrap, topic, codec, self._stop)
        self._thread = threading.Thread(target=self._run, args=(write,), daemon=True)
        self._thread.start()

    def _run(self, write: Callable[[], History]) -> None:
        try:
            self._outcome.append(write())
        except Exception as error:  # noqa: BLE001 - raised where the writer is finished
            self._outcome.append(error)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.set()

    def finish(self) -> History:
        """Stop the writer and return the history of all records that it sent."""
        self._stop.set()
        self._thread.join(2 * END_SECONDS)
        assert self._outcome, "the writer does not end"
        if isinstance(self._outcome[0], Exception):
            raise self._outcome[0]
        return self._outcome[0]
