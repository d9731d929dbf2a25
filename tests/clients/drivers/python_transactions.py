"""The transactional verbs of the client matrix for Python libraries.

Each library has a producer and a consumer with the same blocking methods. `transact` and `copy` are written once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

SECONDS: Final = 60
SESSION_MS: Final = 30_000
HEARTBEAT_MS: Final = 300
POLL_S: Final = 0.1
KAFKA_PYTHON_POLL_MS: Final = 5_000
"""A poll of kafka-python that ends while the member joins its group loses the assignment (see python_clients.py)."""


class Read(NamedTuple):
    """A record that was read."""

    key: bytes
    value: bytes
    offset: int


class Consumer(Protocol):
    """A member of a group that reads only committed records, and commits nothing itself."""

    def poll(self) -> Mapping[int, Sequence[Read]]:
        """Return new records by partition; nothing if there are none for a while."""

    def rewind(self) -> None:
        """Go back to the committed offsets, after an aborted transaction."""

    def close(self) -> None:
        """Leave the group."""


class Producer(Protocol):
    """A producer with a transactional id, whose transactional id is initialized."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        """Send a record."""

    def flush(self) -> None:
        """Wait until every record is acknowledged."""

    def send_offsets(self, topic: str, offsets: Mapping[int, int], consumer: Any) -> None:
        """Add the consumer's offsets to the transaction, with the metadata of its group if the library has it."""

    def commit(self) -> None:
        """Commit the transaction."""

    def abort(self) -> None:
        """Abort the transaction."""

    def close(self) -> None:
        """Close the producer."""


class Library(NamedTuple):
    """One library. `errors`: the exceptions of a transaction that failed. `name_of` names such an exception."""

    producer: Callable[[str, str], Producer]
    consumer: Callable[[str, str, str], Consumer]
    errors: tuple[type[Exception], ...]
    name_of: Callable[[Any], str]


Say = Callable[..., None]


def transact(
    library: Library,
    say: Say,
    ended: threading.Event,
    bootstrap: str,
    topic: str,
    name: str,
    transactions: Iterable[tuple[Iterable[tuple[bytes, bytes]], str]],
) -> None:
    """Send records in transactions. Each ends with commit, abort, or a commit when standard input ends (hold)."""
    producer = library.producer(bootstrap, name)
    for records, end in transactions:
        producer.begin()
        for key, value in records:
            producer.send(topic, key, value)
        producer.flush()
        if end == "hold":
            say(open=True)
            ended.wait()
        try:
            (producer.abort if end == "abort" else producer.commit)()
        except library.errors as refused:
            say(fenced=library.name_of(refused))
            return
        say(ended=end)
    producer.close()


def copy(
    library: Library,
    say: Say,
    ended: threading.Event,
    bootstrap: str,
    source: str,
    target: str,
    group: str,
    name: str,
) -> None:
    """Copy the committed records of a topic, each batch in a transaction with its offsets."""
    producer, consumer = (
        library.producer(bootstrap, name),
        library.consumer(bootstrap, source, group),
    )
    while not ended.is_set():
        batch = consumer.poll()
        if not batch:
            continue
        producer.begin()
        try:
            for read in (read for some in batch.values() for read in some):
                producer.send(target, read.key, read.value)
            ends = {partition: some[-1].offset + 1 for partition, some in batch.items()}
            producer.send_offsets(source, ends, consumer)
            producer.commit()
        except library.errors as refused:
            producer.abort()
            consumer.rewind()
            say(refused=library.name_of(refused))
            continue
        say(copied=[int(read.value) for some in batch.values() for read in some])
    consumer.close()
    producer.close()


class ConfluentProducer:
    """The producer of confluent-kafka."""

    def __init__(self, bootstrap: str, name: str) -> None:
        from confluent_kafka import Producer

        keys = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 5}
        self._producer = Producer(keys)
        self._producer.init_transactions(SECONDS)
        self.begin = self._producer.begin_transaction

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        self._producer.produce(topic, value, key)

    def flush(self) -> None:
        assert self._producer.flush(SECONDS) == 0

    def send_offsets(self, topic: str, offsets: Mapping[int, int], consumer: Any) -> None:
        from confluent_kafka import TopicPartition

        positions = [TopicPartition(topic, p, offset) for p, offset in offsets.items()]
        metadata = consumer.consumer.consumer_group_metadata()
        self._producer.send_offsets_to_transaction(positions, metadata, SECONDS)

    def commit(self) -> None:
        self._producer.commit_transaction(SECONDS)

    def abort(self) -> None:
        self._producer.abort_transaction(SECONDS)

    def close(self) -> None: ...


class ConfluentConsumer:
    """The consumer of confluent-kafka."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        from confluent_kafka import Consumer

        self.consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "partition.assignment.strategy": "range",
            }
        )
        self.consumer.subscribe([topic])

    def poll(self) -> Mapping[int, Sequence[Read]]:
        found: dict[int, list[Read]] = {}
        for message in self.consumer.consume(100, POLL_S):
            if message.error() is None:
                read = Read(message.key(), message.value(), message.offset())
                found.setdefault(message.partition(), []).append(read)
        return found

    def rewind(self) -> None:
        from confluent_kafka import OFFSET_BEGINNING

        for position in self.consumer.committed(self.consumer.assignment(), SECONDS):
            if position.offset < 0:
                position.offset = OFFSET_BEGINNING
            self.consumer.seek(position)

    def close(self) -> None:
        self.consumer.close()


def confluent() -> Library:
    """Return confluent-kafka."""
    from confluent_kafka import KafkaException

    return Library(
        ConfluentProducer,
        ConfluentConsumer,
        (KafkaException,),
        lambda error: str(error.args[0].name()),
    )


class AiokafkaProducer:
    """The producer of aiokafka. Its event loop runs only while a method of this class or of the consumer runs."""

    def __init__(self, bootstrap: str, name: str) -> None:
        from aiokafka import AIOKafkaProducer

        async def make() -> Any:
            return AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)

        self._producer = _run(make())
        _run(self._producer.start())
        self._sent: list[Any] = []

    def begin(self) -> None:
        _run(self._producer.begin_transaction())

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        self._sent.append(_run(self._producer.send(topic, value, key)))

    def flush(self) -> None:
        async def wait() -> None:
            await asyncio.gather(*self._sent)

        _run(wait())
        self._sent.clear()

    def send_offsets(self, topic: str, offsets: Mapping[int, int], consumer: Any) -> None:
        from aiokafka import TopicPartition

        positions = {TopicPartition(topic, p): offset for p, offset in offsets.items()}
        _run(self._producer.send_offsets_to_transaction(positions, consumer.group))

    def commit(self) -> None:
        _run(self._producer.commit_transaction())

    def abort(self) -> None:
        _run(self._producer.abort_transaction())

    def close(self) -> None:
        _run(self._producer.stop())


class AiokafkaConsumer:
    """The consumer of aiokafka."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        from aiokafka import AIOKafkaConsumer

        async def make() -> Any:
            return AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                session_timeout_ms=SESSION_MS,
                heartbeat_interval_ms=HEARTBEAT_MS,
            )

        self.group = group
        self._consumer = _run(make())
        _run(self._consumer.start())

    def poll(self) -> Mapping[int, Sequence[Read]]:
        found = _run(self._consumer.getmany(timeout_ms=round(POLL_S * 1000)))
        return {
            tp.partition: [Read(r.key, r.value, r.offset) for r in some]
            for tp, some in found.items()
        }

    def rewind(self) -> None:
        _run(self._consumer.seek_to_committed())

    def close(self) -> None:
        _run(self._consumer.stop())


_LOOP: list[asyncio.AbstractEventLoop] = []


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    if not _LOOP:
        _LOOP.append(asyncio.new_event_loop())
    return _LOOP[0].run_until_complete(work)


def aiokafka() -> Library:
    """Return aiokafka."""
    from aiokafka.errors import KafkaError

    return Library(
        AiokafkaProducer, AiokafkaConsumer, (KafkaError,), lambda error: type(error).__name__
    )


class KafkaPythonProducer:
    """The producer of kafka-python."""

    def __init__(self, bootstrap: str, name: str) -> None:
        from kafka import KafkaProducer

        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap.split(","), transactional_id=name, linger_ms=5
        )
        self._producer.init_transactions()
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction

    def send(self, topic: str, key: bytes, value: bytes) -> None:
        self._producer.send(topic, value, key)

    def flush(self) -> None:
        self._producer.flush(SECONDS)

    def send_offsets(self, topic: str, offsets: Mapping[int, int], consumer: Any) -> None:
        from kafka import TopicPartition
        from kafka.structs import OffsetAndMetadata

        positions = {
            TopicPartition(topic, p): OffsetAndMetadata(offset, "", -1)
            for p, offset in offsets.items()
        }
        metadata = consumer.consumer.group_metadata()
        self._producer.send_offsets_to_transaction(positions, metadata)

    def close(self) -> None:
        self._producer.close(SECONDS)


class KafkaPythonConsumer:
    """The consumer of kafka-python."""

    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        from kafka import KafkaConsumer

        self.consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )

    def poll(self) -> Mapping[int, Sequence[Read]]:
        found = self.consumer.poll(KAFKA_PYTHON_POLL_MS)
        return {
            tp.partition: [Read(r.key, r.value, r.offset) for r in some]
            for tp, some in found.items()
        }

    def rewind(self) -> None:
        for tp in self.consumer.assignment():
            committed = self.consumer.committed(tp)
            if committed is None:
                self.consumer.seek_to_beginning(tp)
            else:
                self.consumer.seek(tp, committed)

    def close(self) -> None:
        self.consumer.close()


def kafka_python() -> Library:
    """Return kafka-python."""
    from kafka.errors import KafkaError

    return Library(
        KafkaPythonProducer, KafkaPythonConsumer, (KafkaError,), lambda error: type(error).__name__
    )


LIBRARIES: Final[dict[str, Callable[[], Library]]] = {
    "confluent-kafka": confluent,
    "aiokafka": aiokafka,
    "kafka-python": kafka_python,
}
