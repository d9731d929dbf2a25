"""The recording of aiokafka's clients."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from contextvars import ContextVar
from typing import Any, Final

from minikafka.checks.histories import FAILED, OK, UNKNOWN
from minikafka.testing.history_tape import EARLIEST, Tape, outcome_of
from minikafka.testing.wrap_kafka_python import NOT_WRITTEN, Assignments, note_read, places_of

_number: Final = ContextVar("_number", default=-1)
"""The number of the send in progress in this task."""


class _Producer:
    """The methods of an AIOKafkaProducer that record."""

    _tape: Tape

    async def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        partition: Any = None,
        timestamp_ms: Any = None,
        headers: Any = None,
    ) -> Any:
        tape = self._tape
        number = tape.sending(topic, value, key, partition, is_final=False)
        token = _number.set(number)
        try:
            future = await super().send(topic, value, key, partition, timestamp_ms, headers)  # type: ignore[misc]
        except asyncio.CancelledError:
            tape.done(number, UNKNOWN)
            raise
        except BaseException:
            tape.done(number, FAILED)
            raise
        finally:
            _number.reset(token)
        tape.sent(number)
        future.add_done_callback(lambda done: _note_outcome(tape, number, done))
        return future

    def _serialize(self, key: Any, value: Any, *args: Any) -> Any:
        result = super()._serialize(key, value, *args)  # type: ignore[misc]
        self._tape.converted(_number.get(), result[1], result[0])
        return result

    async def begin_transaction(self) -> Any:
        result = await super().begin_transaction()  # type: ignore[misc]
        self._tape.began()
        return result

    async def send_offsets_to_transaction(self, offsets: Any, group_id: Any) -> Any:
        call = super().send_offsets_to_transaction  # type: ignore[misc]
        numbers = self._tape.sending_offsets(str(group_id), places_of(offsets))
        return await _settled(self._tape, numbers, call(offsets, group_id))

    async def commit_transaction(self) -> Any:
        call = super().commit_transaction  # type: ignore[misc]
        return await _settled(self._tape, [self._tape.ending(True)], call())

    async def abort_transaction(self) -> Any:
        call = super().abort_transaction  # type: ignore[misc]
        return await _settled(self._tape, [self._tape.ending(False)], call())

    async def stop(self) -> Any:
        result = await super().stop()  # type: ignore[misc]
        self._tape.gone()
        return result


class _Consumer(Assignments):
    """The methods of an AIOKafkaConsumer that record."""

    _group_id: str | None

    def subscribe(self, *args: Any, **kwargs: Any) -> Any:
        result = super().subscribe(*args, **kwargs)  # type: ignore[misc]
        self._tape.group = self._group_id
        self._tape.wants(self.subscription())  # type: ignore[attr-defined]
        return result

    async def getone(self, *partitions: Any) -> Any:
        record = await super().getone(*partitions)  # type: ignore[misc]
        self._note_read([record])
        return record

    async def getmany(self, *partitions: Any, **kwargs: Any) -> Any:
        found = await super().getmany(*partitions, **kwargs)  # type: ignore[misc]
        for records in found.values():
            self._note_read(records)
        return found

    def _note_read(self, records: Iterable[Any]) -> None:
        names = ("_value_deserializer", "_key_deserializer")
        note_read(self._tape, records, not any(getattr(self, name, None) for name in names))

    def seek(self, partition: Any, offset: Any) -> Any:
        result = super().seek(partition, offset)  # type: ignore[misc]
        self._tape.moved(partition[0], partition[1], offset)
        return result

    async def seek_to_beginning(self, *partitions: Any) -> Any:
        return await self._move(partitions, super().seek_to_beginning(*partitions))  # type: ignore[misc]

    async def seek_to_end(self, *partitions: Any) -> Any:
        return await self._move(partitions, super().seek_to_end(*partitions))  # type: ignore[misc]

    async def seek_to_committed(self, *partitions: Any) -> Any:
        return await self._move(partitions, super().seek_to_committed(*partitions))  # type: ignore[misc]

    async def _move(self, partitions: Any, call: Awaitable[Any]) -> Any:
        result = await call
        for partition in partitions or self.assignment():  # type: ignore[attr-defined]
            self._tape.moved(partition[0], partition[1])
        return result

    async def commit(self, offsets: Any = None) -> Any:
        places = places_of(offsets) if offsets else self._consumed()
        result = await super().commit(offsets)  # type: ignore[misc]
        self._tape.committed(places)
        return result

    def _consumed(self) -> list[tuple[str, int, int]]:
        """Return what `commit` without offsets commits."""
        subscription = self._subscription.subscription  # type: ignore[attr-defined]
        assignment = subscription and subscription.assignment
        return places_of(assignment.all_consumed_offsets()) if assignment else []

    async def stop(self) -> Any:
        result = await super().stop()  # type: ignore[misc]
        self._tape.gone()
        return result


def _note_outcome(tape: Tape, number: int, done: asyncio.Future[Any]) -> None:
    if done.cancelled():
        tape.done(number, UNKNOWN)
    elif (error := done.exception()) is not None:
        tape.done(number, outcome_of(error, NOT_WRITTEN))
    else:
        made = done.result()
        offset = -1 if made.offset is None else max(made.offset, -1)
        tape.done(number, OK, partition=made.partition, offset=offset)


async def _settled(tape: Tape, numbers: Iterable[int], call: Awaitable[Any]) -> Any:
    """Await a call, and record its outcome for these operations."""
    try:
        result = await call
    except BaseException:
        for number in numbers:
            tape.done(number, UNKNOWN)
        raise
    for number in numbers:
        tape.done(number)
    return result


def set_up_producer(producer: Any, tape: Tape) -> None:
    """Let a producer record to `tape`."""
    manager = producer._txn_manager
    tape.set_transactional_id(manager.transactional_id if manager is not None else None)
    _set_servers(producer.client, tape)
    producer._tape = tape


def set_up_consumer(consumer: Any, tape: Tape) -> None:
    """Let a consumer record to `tape`, also what it has subscribed to already."""
    _set_servers(consumer._client, tape)
    if consumer._auto_offset_reset in EARLIEST:
        tape.begins_at = 0
    consumer._tape = tape
    if topics := consumer.subscription():
        tape.group = consumer._group_id
        tape.wants(topics)


def _set_servers(client: Any, tape: Tape) -> None:
    servers = client._bootstrap_servers
    tape.servers = servers if isinstance(servers, str) else ",".join(servers)
    tape.is_secure = client._security_protocol != "PLAINTEXT"


PRODUCER: Final = _Producer
CONSUMER: Final = _Consumer
"""The bases of clients that record."""
