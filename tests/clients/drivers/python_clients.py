"""The program of the client matrix that performs one operation with a Python client library.

    python_clients.py LIBRARY VERB …

The library is confluent-kafka, aiokafka or kafka-python. The verb selects the operation. The verbs and their output
are described in `tests/support/clients/client_drivers.py`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

import python_logins
from python_transactions import LIBRARIES, copy, transact

logging.getLogger("kafka").setLevel(logging.CRITICAL)
SESSION_MS: Final = 30_000
HEARTBEAT_MS: Final = 300
SECONDS: Final = 60
POLL_MS: Final = 3_600_000
"""Timeout of a kafka-python poll, longer than any run. In kafka-python 3.0.12, a poll that times out between the
JoinGroup and SyncGroup responses of a rejoin for new metadata loses the assignment: the member reads nothing more."""


def say(**fact: Any) -> None:
    """Write one line of JSON."""
    print(json.dumps(fact), flush=True)


def until_input_ends() -> threading.Event:
    """Return an event that is set when standard input ends."""
    ended = threading.Event()

    def wait() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=wait, daemon=True).start()
    return ended


class Interruptible:
    """A wrapper that interrupts a blocking call when standard input ends. The process sends itself SIGINT for this.

    The interrupted call and all later calls return {}.
    """

    def __init__(self, call: Callable[[], dict[Any, Any]]) -> None:
        self._call = call
        self._is_calling = False
        self._ended = False
        signal.signal(signal.SIGINT, self._interrupt)
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        sys.stdin.buffer.read()
        self._ended = True
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _interrupt(self, *_: object) -> None:
        # Between two calls, the client prints and commits records. An exception must not interrupt this.
        if self._is_calling:
            raise KeyboardInterrupt

    def __call__(self) -> dict[Any, Any]:
        try:
            self._is_calling = True
            return {} if self._ended else self._call()
        except KeyboardInterrupt:
            return {}
        finally:
            self._is_calling = False


def records(first: int, count: int) -> Iterable[tuple[bytes, bytes]]:
    """Yield (key, value) of `count` records. The value is the record's number, from `first` on."""
    return ((b"%d" % (number % 7), b"%d" % number) for number in range(first, first + count))


class Driver(Protocol):
    """The operations of this program with one client library. Each method is one verb of the command line."""

    def produce(self, bootstrap: str, topic: str, codec: str, first: int, count: int) -> None:
        """Send records with an idempotent producer where the library has one."""

    def stream(self, bootstrap: str, topic: str) -> None:
        """Send records 0, 1, … until standard input ends."""

    def consume(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        assignor: str,
        instance: str | None,
        isolation: str,
    ) -> None:
        """Consume as a group member until standard input ends. `isolation`: "" for the library's default."""

    def time(self, bootstrap: str, topic: str, partitions: int, timestamp: int) -> dict[int, int]:
        """Return, for each partition, the first offset at or after a time, or -1 if no record is that late."""

    def admin(self, bootstrap: str, topic: str, partitions: int) -> int:
        """Create a topic, count its partitions, delete it."""


class Confluent:
    """The `Driver` for confluent-kafka, the Python binding of librdkafka."""

    def _producer(self, bootstrap: str, codec: str) -> Any:
        from confluent_kafka import Producer

        return Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 5,
                **python_logins.confluent(),
            }
        )

    def produce(self, bootstrap: str, topic: str, codec: str, first: int, count: int) -> None:
        producer = self._producer(bootstrap, codec)
        failed: list[str] = []

        def report(error: Any, _: Any) -> None:
            if error is not None:
                failed.append(str(error))

        for key, value in records(first, count):
            producer.produce(topic, value, key, on_delivery=report)
        assert producer.flush(SECONDS) == 0
        assert not failed, failed

    def stream(self, bootstrap: str, topic: str) -> None:
        producer = self._producer(bootstrap, "none")
        ended = until_input_ends()

        def report(error: Any, message: Any) -> None:
            assert error is None, error
            say(acked=int(message.value()))

        number = 0
        while not ended.is_set():
            producer.produce(topic, b"%d" % number, on_delivery=report)
            number += 1
            producer.poll(0.005)
        assert producer.flush(SECONDS) == 0

    def consume(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        assignor: str,
        instance: str | None,
        isolation: str,
    ) -> None:
        from confluent_kafka import Consumer

        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "topic.metadata.refresh.interval.ms": 1000,
                "partition.assignment.strategy": {"cooperative": "cooperative-sticky"}.get(
                    assignor, "range"
                ),
                **({"group.instance.id": instance} if instance else {}),
                **({"isolation.level": isolation} if isolation else {}),
                **python_logins.confluent(),
            }
        )

        def assigned(_: Any, partitions: Sequence[Any]) -> None:
            say(assigned=[p.partition for p in partitions])

        def revoked(_: Any, partitions: Sequence[Any]) -> None:
            say(revoked=[p.partition for p in partitions])

        consumer.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
        ended = until_input_ends()
        while not ended.is_set():
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                say(
                    value=int(message.value()),
                    partition=message.partition(),
                    offset=message.offset(),
                )
                self._commit(consumer, message)
        consumer.close()

    @staticmethod
    def _commit(consumer: Any, message: Any) -> None:
        from confluent_kafka import KafkaException

        try:
            consumer.commit(message, asynchronous=False)
        except KafkaException as refused:
            say(refused=refused.args[0].name())

    def time(self, bootstrap: str, topic: str, partitions: int, timestamp: int) -> dict[int, int]:
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused"})
        asked = [TopicPartition(topic, p, timestamp) for p in range(partitions)]
        found = consumer.offsets_for_times(asked, SECONDS)
        ends = {
            p: consumer.get_watermark_offsets(TopicPartition(topic, p))[1]
            for p in range(partitions)
        }
        consumer.close()
        # librdkafka returns OFFSET_END (-1) if no record has this timestamp or a later one.
        return {p.partition: -1 if p.offset in (-1, ends[p.partition]) else p.offset for p in found}

    def admin(self, bootstrap: str, topic: str, partitions: int) -> int:
        from confluent_kafka.admin import AdminClient, NewTopic

        client = AdminClient({"bootstrap.servers": bootstrap})
        client.create_topics([NewTopic(topic, partitions, 3)])[topic].result(SECONDS)
        found = 0
        while not found:  # a broker may not know the topic yet
            found = len(client.list_topics(topic, SECONDS).topics[topic].partitions)
        client.delete_topics([topic])[topic].result(SECONDS)
        return found


class Aiokafka:
    """The `Driver` for aiokafka. Each operation runs in its own event loop."""

    def produce(self, bootstrap: str, topic: str, codec: str, first: int, count: int) -> None:
        asyncio.run(self._produce(bootstrap, topic, codec, first, count))

    def _producer(self, bootstrap: str, codec: str) -> Any:
        from aiokafka import AIOKafkaProducer

        return AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            enable_idempotence=True,
            compression_type=None if codec == "none" else codec,
            **python_logins.aiokafka(),
        )

    async def _produce(
        self, bootstrap: str, topic: str, codec: str, first: int, count: int
    ) -> None:
        async with self._producer(bootstrap, codec) as producer:
            sent = [await producer.send(topic, value, key) for key, value in records(first, count)]
            await asyncio.gather(*sent)

    def stream(self, bootstrap: str, topic: str) -> None:
        asyncio.run(self._stream(bootstrap, topic))

    async def _stream(self, bootstrap: str, topic: str) -> None:
        ended = until_input_ends()
        async with self._producer(bootstrap, "none") as producer:
            sent = []
            while not ended.is_set():
                number = len(sent)
                sent.append(asyncio.create_task(self._send(producer, topic, number)))
                await asyncio.sleep(0.005)
            await asyncio.gather(*sent)

    @staticmethod
    async def _send(producer: Any, topic: str, number: int) -> None:
        await producer.send_and_wait(topic, b"%d" % number)
        say(acked=number)

    def consume(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        assignor: str,
        instance: str | None,
        isolation: str,
    ) -> None:
        asyncio.run(self._consume(bootstrap, topic, group, instance, isolation))

    async def _consume(
        self, bootstrap: str, topic: str, group: str, instance: str | None, isolation: str
    ) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
        from aiokafka.errors import CommitFailedError, KafkaError

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_revoked(self, revoked: Any) -> None:
                say(revoked=[tp.partition for tp in revoked])

            async def on_partitions_assigned(self, assigned: Any) -> None:
                say(assigned=[tp.partition for tp in assigned])

        consumer = AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            group_id=group,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            isolation_level=isolation or "read_uncommitted",
            metadata_max_age_ms=1000,
            **python_logins.aiokafka(),
        )
        consumer.subscribe([topic], listener=Listener())
        ended = until_input_ends()
        await consumer.start()
        while not ended.is_set():
            for tp, found in (await consumer.getmany(timeout_ms=100)).items():
                for record in found:
                    say(value=int(record.value), partition=tp.partition, offset=record.offset)
                try:
                    await consumer.commit({tp: found[-1].offset + 1})
                except (CommitFailedError, KafkaError) as refused:
                    say(refused=type(refused).__name__)
        await consumer.stop()

    def time(self, bootstrap: str, topic: str, partitions: int, timestamp: int) -> dict[int, int]:
        return asyncio.run(self._time(bootstrap, topic, partitions, timestamp))

    async def _time(
        self, bootstrap: str, topic: str, partitions: int, timestamp: int
    ) -> dict[int, int]:
        from aiokafka import AIOKafkaConsumer, TopicPartition

        async with AIOKafkaConsumer(bootstrap_servers=bootstrap) as consumer:
            asked = {TopicPartition(topic, p): timestamp for p in range(partitions)}
            found = await consumer.offsets_for_times(asked)
        return {tp.partition: -1 if at is None else at.offset for tp, at in found.items()}

    def admin(self, bootstrap: str, topic: str, partitions: int) -> int:
        return asyncio.run(self._admin(bootstrap, topic, partitions))

    async def _admin(self, bootstrap: str, topic: str, partitions: int) -> int:
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        client = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await client.start()
        try:
            await client.create_topics([NewTopic(topic, partitions, 3)])
            described: dict[str, Any] = {"partitions": []}
            while not described["partitions"]:  # a broker may not know the topic yet
                (described,) = await client.describe_topics([topic])
            await client.delete_topics([topic])
        finally:
            await client.close()
        return len(described["partitions"])


class KafkaPython:
    """The `Driver` for kafka-python."""

    def _producer(self, bootstrap: str, codec: str) -> Any:
        from kafka import KafkaProducer

        return KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            compression_type=None if codec == "none" else codec,
            linger_ms=5,
            **python_logins.kafka_python(),
        )

    def produce(self, bootstrap: str, topic: str, codec: str, first: int, count: int) -> None:
        producer = self._producer(bootstrap, codec)
        sent = [producer.send(topic, value, key) for key, value in records(first, count)]
        for future in sent:
            future.get(SECONDS)
        producer.close(SECONDS)

    def stream(self, bootstrap: str, topic: str) -> None:
        producer = self._producer(bootstrap, "none")
        ended = until_input_ends()
        sent: list[Any] = []
        while not ended.wait(0.005):
            number = len(sent)
            future = producer.send(topic, b"%d" % number)
            sent.append(future.add_callback(lambda _, number=number: say(acked=number)))
        for future in sent:
            future.get(SECONDS)
        producer.close(SECONDS)

    def consume(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        assignor: str,
        instance: str | None,
        isolation: str,
    ) -> None:
        import kafka
        from kafka.errors import KafkaError

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, revoked: Any) -> None:
                say(revoked=[tp.partition for tp in revoked])

            def on_partitions_assigned(self, assigned: Any) -> None:
                say(assigned=[tp.partition for tp in assigned])

        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=group,
            group_instance_id=instance,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            isolation_level=isolation or "read_uncommitted",
            metadata_max_age_ms=1000,
            **python_logins.kafka_python(),
        )
        consumer.subscribe([topic], listener=Listener())
        poll = Interruptible(lambda: consumer.poll(POLL_MS))
        while polled := poll():
            for tp, found in polled.items():
                for record in found:
                    say(value=int(record.value), partition=tp.partition, offset=record.offset)
                try:
                    consumer.commit()
                except KafkaError as refused:
                    say(refused=type(refused).__name__)
        consumer.close()

    def time(self, bootstrap: str, topic: str, partitions: int, timestamp: int) -> dict[int, int]:
        from kafka import KafkaConsumer, TopicPartition

        # Without a short age of the metadata, kafka-python asks a former leader until its timeout of 30 s.
        consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), metadata_max_age_ms=1_000)
        found = consumer.offsets_for_times(
            {TopicPartition(topic, p): timestamp for p in range(partitions)}
        )
        consumer.close()
        return {tp.partition: -1 if at is None else at.offset for tp, at in found.items()}

    def admin(self, bootstrap: str, topic: str, partitions: int) -> int:
        from kafka.admin import KafkaAdminClient, NewTopic

        client = KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
        client.create_topics([NewTopic(topic, partitions, 3)])
        described: dict[str, Any] = {"partitions": []}
        while not described["partitions"]:  # a broker may not know the topic yet
            (described,) = client.describe_topics([topic])
        client.delete_topics([topic])
        client.close()
        return len(described["partitions"])


DRIVERS: Final[dict[str, Callable[[], Driver]]] = {
    "confluent-kafka": Confluent,
    "aiokafka": Aiokafka,
    "kafka-python": KafkaPython,
}


def main(library: str, verb: str, bootstrap: str, topic: str, *rest: str) -> None:
    """Perform the operation `verb` with this client library. `rest`: the further arguments of the verb."""
    driver = DRIVERS[library]()
    if verb == "produce":
        codec, first, count = rest
        driver.produce(bootstrap, topic, codec, int(first), int(count))
    elif verb == "attempt":
        say(**python_logins.attempt(library, bootstrap, topic))
    elif verb == "stream":
        driver.stream(bootstrap, topic)
    elif verb == "consume":
        group, assignor, instance, *isolation = rest
        driver.consume(bootstrap, topic, group, assignor, instance or None, "".join(isolation))
    elif verb == "transact":
        name, first, count, ends = rest
        starts = itertools.count(int(first), int(count))
        sent = [(records(next(starts), int(count)), end) for end in ends.split(",")]
        transact(LIBRARIES[library](), say, until_input_ends(), bootstrap, topic, name, sent)
    elif verb == "copy":
        copy(LIBRARIES[library](), say, until_input_ends(), bootstrap, topic, *rest)
    elif verb == "time":
        partitions, timestamp = rest
        say(offsets=driver.time(bootstrap, topic, int(partitions), int(timestamp)))
    elif verb == "admin":
        say(partitions=driver.admin(bootstrap, topic, int(rest[0])))
    else:
        raise SystemExit(f"no verb {verb}")


if __name__ == "__main__":
    main(*sys.argv[1:])
