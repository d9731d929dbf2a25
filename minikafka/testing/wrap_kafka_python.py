"""The recording of kafka-python's clients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from minikafka.checks.histories import FAILED, OK, UNKNOWN
from minikafka.testing.history_tape import EARLIEST, Tape, outcome_of

NOT_WRITTEN: Final = frozenset(
    {
        "MessageSizeTooLargeError",
        "RecordTooLargeError",
        "RecordListTooLargeError",
        "TopicAuthorizationFailedError",
        "InvalidTopicError",
        "UnknownTopicOrPartitionError",
    }
)
"""The errors of a send after which the record is certainly not in the log."""
_sending: Final = threading.local()


class _Producer:
    """The methods of a KafkaProducer that record."""

    _tape: Tape

    def send(
        self,
        topic: Any,
        value: Any = None,
        key: Any = None,
        headers: Any = None,
        partition: Any = None,
        timestamp_ms: Any = None,
    ) -> Any:
        tape = self._tape
        _sending.number = number = tape.sending(topic, value, key, partition, is_final=False)
        _sending.converted = []
        try:
            future = super().send(topic, value, key, headers, partition, timestamp_ms)  # type: ignore[misc]
        except BaseException:
            tape.done(number, FAILED)
            raise
        tape.sent(number)
        _note_outcome(tape, number, future)
        return future

    def _serialize(self, *args: Any) -> Any:
        """Note the converted key, then the converted value of the send in progress."""
        result = super()._serialize(*args)  # type: ignore[misc]
        converted = getattr(_sending, "converted", None)
        if converted is not None:
            converted.append(result)
            if len(converted) == 2:
                _sending.converted = None
                if all(one is None or isinstance(one, _BYTES) for one in converted):
                    self._tape.converted(_sending.number, converted[1], converted[0])
        return result

    def begin_transaction(self) -> Any:
        result = super().begin_transaction()  # type: ignore[misc]
        self._tape.began()
        return result

    def send_offsets_to_transaction(self, offsets: Any, group: Any) -> Any:
        call = super().send_offsets_to_transaction  # type: ignore[misc]
        numbers = self._tape.sending_offsets(_group_of(group), places_of(offsets))
        return _settled(self._tape, numbers, call, offsets, group)

    def commit_transaction(self) -> Any:
        call = super().commit_transaction  # type: ignore[misc]
        return _settled(self._tape, [self._tape.ending(True)], call)

    def abort_transaction(self) -> Any:
        call = super().abort_transaction  # type: ignore[misc]
        return _settled(self._tape, [self._tape.ending(False)], call)

    def close(self, *args: Any, **kwargs: Any) -> Any:
        result = super().close(*args, **kwargs)  # type: ignore[misc]
        self._tape.gone()
        return result


_BYTES: Final = (bytes, bytearray, memoryview)


class Assignments:
    """The methods of consumers of kafka-python and aiokafka that record what was assigned by hand."""

    _tape: Tape

    def assign(self, partitions: Any) -> Any:
        """Assign partitions, and record them."""
        result = super().assign(partitions)  # type: ignore[misc]
        self._tape.assigned_by_hand((*partition[:2], -1) for partition in partitions)
        return result

    def unsubscribe(self) -> Any:
        """End the subscription or assignment, and record that the consumer waits for no records."""
        result = super().unsubscribe()  # type: ignore[misc]
        self._tape.unwanted()
        return result


class _Consumer(Assignments):
    """The methods of a KafkaConsumer that record."""

    config: dict[str, Any]

    def subscribe(self, *args: Any, **kwargs: Any) -> Any:
        result = super().subscribe(*args, **kwargs)  # type: ignore[misc]
        self._tape.group = self.config["group_id"]
        self._tape.wants(self.subscription() or ())  # type: ignore[attr-defined]
        return result

    def poll(self, timeout_ms: Any = 0, max_records: Any = None, update_offsets: Any = True) -> Any:
        found = super().poll(timeout_ms, max_records, update_offsets)  # type: ignore[misc]
        if update_offsets:  # otherwise the iterator asks, and returns the records one by one
            for records in found.values():
                self._note_read(records)
        return found

    def __next__(self) -> Any:
        record = super().__next__()  # type: ignore[misc]
        self._note_read([record])
        return record

    def _note_read(self, records: Iterable[Any]) -> None:
        names = ("value_deserializer", "key_deserializer")
        note_read(self._tape, records, not any(self.config[name] for name in names))

    def seek(self, partition: Any, offset: Any) -> Any:
        result = super().seek(partition, offset)  # type: ignore[misc]
        self._tape.moved(partition[0], partition[1], offset)
        return result

    def seek_to_beginning(self, *partitions: Any) -> Any:
        result = super().seek_to_beginning(*partitions)  # type: ignore[misc]
        self._note_moved(partitions)
        return result

    def seek_to_end(self, *partitions: Any) -> Any:
        result = super().seek_to_end(*partitions)  # type: ignore[misc]
        self._note_moved(partitions)
        return result

    def _note_moved(self, partitions: Any) -> None:
        for partition in partitions or self.assignment():  # type: ignore[attr-defined]
            self._tape.moved(partition[0], partition[1])

    def commit(self, offsets: Any = None, *args: Any, **kwargs: Any) -> Any:
        places = self._to_commit(offsets)
        result = super().commit(offsets, *args, **kwargs)  # type: ignore[misc]
        self._tape.committed(places)
        return result

    def commit_async(self, offsets: Any = None, callback: Any = None) -> Any:
        places = self._to_commit(offsets)
        future = super().commit_async(offsets, callback)  # type: ignore[misc]
        future.add_callback(lambda _: self._tape.committed(places))
        return future

    def _to_commit(self, offsets: Any) -> list[tuple[str, int, int]]:
        if offsets is None:
            offsets = self._subscription.all_consumed_offsets()  # type: ignore[attr-defined]
        return places_of(offsets)

    def close(self, *args: Any, **kwargs: Any) -> Any:
        result = super().close(*args, **kwargs)  # type: ignore[misc]
        self._tape.gone()
        return result


def _note_outcome(tape: Tape, number: int, future: Any) -> None:
    def note(made: Any) -> None:
        tape.done(number, OK, partition=made.partition, offset=max(made.offset, -1))

    future.add_callback(note)
    future.add_errback(lambda error: tape.done(number, outcome_of(error, NOT_WRITTEN)))


def places_of(offsets: Any) -> list[tuple[str, int, int]]:
    """Return the partitions and offsets of a commit."""
    return [(*tp[:2], at if isinstance(at, int) else at[0]) for tp, at in offsets.items()]


def _group_of(group: Any) -> str:
    return group if isinstance(group, str) else str(getattr(group, "group_id", ""))


def note_read(tape: Tape, records: Iterable[Any], is_raw: bool) -> None:
    """Record the records that an application received."""
    for record in records:
        place = record.topic, record.partition, record.offset
        tape.received(*place, record.value, record.key, is_raw=is_raw)


def _settled(tape: Tape, numbers: Iterable[int], call: Callable[..., Any], *args: Any) -> Any:
    """Make a call, and record its outcome for these operations."""
    try:
        result = call(*args)
    except BaseException:
        for number in numbers:
            tape.done(number, UNKNOWN)
        raise
    for number in numbers:
        tape.done(number)
    return result


def set_up_producer(producer: Any, tape: Tape) -> None:
    """Let a producer record to `tape`."""
    tape.set_transactional_id(producer.config.get("transactional_id"))
    _set_servers(producer, tape)
    producer._tape = tape


def set_up_consumer(consumer: Any, tape: Tape) -> None:
    """Let a consumer record to `tape`, also what it has subscribed to already."""
    _set_servers(consumer, tape)
    if consumer.config["auto_offset_reset"] in EARLIEST:
        tape.begins_at = 0
    consumer._tape = tape
    if topics := consumer.subscription():
        tape.group = consumer.config["group_id"]
        tape.wants(topics)


def _set_servers(client: Any, tape: Tape) -> None:
    servers = client.config["bootstrap_servers"]
    tape.servers = servers if isinstance(servers, str) else ",".join(servers)
    tape.is_secure = client.config["security_protocol"] != "PLAINTEXT"


PRODUCER: Final = _Producer
CONSUMER: Final = _Consumer
"""The bases of clients that record."""
