"""The recording of confluent-kafka's clients.

Its clients are types in C, so their methods cannot be replaced. A client that is created inside of a history is an
instance of a subclass; one that exists already gets a stand-in that passes every call on to it.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from typing import Any, Final

from minikafka.checks.histories import FAILED, OK, UNKNOWN
from minikafka.testing.history_tape import EARLIEST, Tape

_ARGUMENTS: Final = (
    "topic",
    "value",
    "key",
    "partition",
    "callback",
    "on_delivery",
    "timestamp",
    "headers",
)
"""The names of the positional arguments of `produce`."""
_NOT_WRITTEN: Final = frozenset(
    {
        "_PURGE_QUEUE",
        "MSG_SIZE_TOO_LARGE",
        "RECORD_LIST_TOO_LARGE",
        "TOPIC_AUTHORIZATION_FAILED",
        "INVALID_RECORD",
        "_UNKNOWN_TOPIC",
        "_UNKNOWN_PARTITION",
    }
)
"""The errors of a delivery after which the record is certainly not in the log."""
_GROUP_AT: Final = {b"CGMDv2:": 11, b"CGMDv1:": 7}
"""Where librdkafka's serialized metadata of a consumer group have the group's id, which ends with a zero byte."""
Delivered = Callable[[Any, Any], Any]


class _Client:
    """The ends of a client. `_tape` is None outside of a history."""

    _tape: Tape | None = None

    def close(self, *args: Any, **kwargs: Any) -> Any:
        result = super().close(*args, **kwargs)  # type: ignore[misc]
        if self._tape is not None:
            self._tape.gone()
        return result

    def __exit__(self, *error: Any) -> Any:
        result = super().__exit__(*error)  # type: ignore[misc]
        if self._tape is not None:
            self._tape.gone()
        return result


class _Producer(_Client):
    """The methods of a Producer that record."""

    _default: Delivered | None = None
    """The callback of the configuration, which librdkafka only calls if the call has none."""
    _reports_success = True

    def produce(self, *args: Any, **kwargs: Any) -> Any:
        tape = self._tape
        if tape is None:
            return super().produce(*args, **kwargs)  # type: ignore[misc]
        call = {**dict(zip(_ARGUMENTS, args, strict=False)), **kwargs}
        given = [call.pop(name, None) for name in ("on_delivery", "callback")]
        user = next(filter(None, given), self._default)
        content = call.get("value"), call.get("key")
        partition = call.get("partition")
        number = tape.sending(
            call.get("topic", ""), *content, partition, is_final=_is_bytes(content)
        )
        call["on_delivery"] = _reporter(tape, number, user, self._reports_success)
        try:
            result = super().produce(**call)  # type: ignore[misc]
        except BaseException:
            tape.done(number, FAILED)
            raise
        tape.sent(number)
        return result

    def produce_batch(self, topic: str, messages: Any, *args: Any, **kwargs: Any) -> Any:
        tape = self._tape
        if tape is None:
            return super().produce_batch(topic, messages, *args, **kwargs)  # type: ignore[misc]
        call = {**dict(zip(("partition", "callback", "on_delivery"), args, strict=False)), **kwargs}
        default = call.pop("on_delivery", None) or call.pop("callback", None) or self._default
        numbers = []
        for message in messages:
            partition = message.get("partition", call.get("partition"))
            content = message.get("value"), message.get("key")
            number = tape.sending(topic, *content, partition, is_final=_is_bytes(content))
            user = message.get("callback") or default
            message["callback"] = _reporter(tape, number, user, self._reports_success)
            numbers.append(number)
        result = super().produce_batch(topic, messages, **call)  # type: ignore[misc]
        for message, number in zip(messages, numbers, strict=True):
            if "_error" in message:
                tape.done(number, FAILED)
            tape.sent(number)
        return result

    def begin_transaction(self, *args: Any) -> Any:
        result = super().begin_transaction(*args)  # type: ignore[misc]
        if self._tape is not None:
            self._tape.began()
        return result

    def send_offsets_to_transaction(self, positions: Any, metadata: Any, *args: Any) -> Any:
        call = super().send_offsets_to_transaction  # type: ignore[misc]
        if self._tape is None:
            return call(positions, metadata, *args)
        places = [(one.topic, one.partition, one.offset) for one in positions]
        numbers = self._tape.sending_offsets(group_in(metadata), places)
        return _settled(self._tape, numbers, call, positions, metadata, *args)

    def commit_transaction(self, *args: Any) -> Any:
        return self._end(True, super().commit_transaction, *args)  # type: ignore[misc]

    def abort_transaction(self, *args: Any) -> Any:
        return self._end(False, super().abort_transaction, *args)  # type: ignore[misc]

    def _end(self, is_commit: bool, call: Callable[..., Any], *args: Any) -> Any:
        if self._tape is None:
            return call(*args)
        return _settled(self._tape, [self._tape.ending(is_commit)], call, *args)


class _Consumer(_Client):
    """The methods of a Consumer that record. `_tape` is None outside of a history."""

    _group: str | None = None
    _subscribes = False

    def subscribe(self, topics: Any, *args: Any, **kwargs: Any) -> Any:
        result = super().subscribe(topics, *args, **kwargs)  # type: ignore[misc]
        self._subscribes = True
        if self._tape is not None:
            self._tape.group = self._group
            self._tape.wants(topic for topic in topics if not topic.startswith("^"))
        return result

    def assign(self, partitions: Any, *args: Any, **kwargs: Any) -> Any:
        result = super().assign(partitions, *args, **kwargs)  # type: ignore[misc]
        self._note_assigned(partitions)
        return result

    def incremental_assign(self, partitions: Any, *args: Any, **kwargs: Any) -> Any:
        result = super().incremental_assign(partitions, *args, **kwargs)  # type: ignore[misc]
        self._note_assigned(partitions)
        return result

    def _note_assigned(self, partitions: Any) -> None:
        if self._tape is None:
            return
        places = [(one.topic, one.partition, one.offset) for one in partitions]
        if not self._subscribes:
            self._tape.assigned_by_hand(places)
            return
        for topic, partition, offset in places:
            if offset >= 0:
                self._tape.moved(topic, partition, offset)

    def unsubscribe(self) -> Any:
        result = super().unsubscribe()  # type: ignore[misc]
        self._subscribes = False
        if self._tape is not None:
            self._tape.unwanted()
        return result

    def unassign(self) -> Any:
        result = super().unassign()  # type: ignore[misc]
        if self._tape is not None and not self._subscribes:
            self._tape.unwanted()
        return result

    def poll(self, *args: Any, **kwargs: Any) -> Any:
        message = super().poll(*args, **kwargs)  # type: ignore[misc]
        self._note_read(message)
        return message

    def consume(self, *args: Any, **kwargs: Any) -> Any:
        messages = super().consume(*args, **kwargs)  # type: ignore[misc]
        for message in messages:
            self._note_read(message)
        return messages

    def _note_read(self, message: Any) -> None:
        if message is None or message.error() is not None or self._tape is None:
            return
        place = message.topic(), message.partition(), message.offset()
        self._tape.received(*place, message.value(), message.key(), is_raw=True)

    def seek(self, partition: Any) -> Any:
        result = super().seek(partition)  # type: ignore[misc]
        if self._tape is not None:
            self._tape.moved(partition.topic, partition.partition, partition.offset)
        return result

    def commit(self, *args: Any, **kwargs: Any) -> Any:
        done = super().commit(*args, **kwargs)  # type: ignore[misc]
        if done and self._tape is not None:
            places = [(one.topic, one.partition, one.offset) for one in done if one.error is None]
            self._tape.committed(place for place in places if place[2] >= 0)
        return done


def _is_bytes(content: Iterable[Any]) -> bool:
    return all(one is None or isinstance(one, str | bytes) for one in content)


def _reporter(tape: Tape, number: int, user: Delivered | None, reports_success: bool) -> Delivered:
    def report(error: Any, message: Any) -> None:
        tape.converted(number, message.value(), message.key())
        if error is None:
            offset = message.offset()  # None with acks=0
            place = {"partition": message.partition(), "offset": -1 if offset is None else offset}
            tape.done(number, OK, **place)
        else:
            tape.done(number, FAILED if error.name() in _NOT_WRITTEN else UNKNOWN)
        if user is not None and (reports_success or error is not None):
            user(error, message)

    return report


def _settled(tape: Tape, numbers: Iterable[int], call: Callable[..., Any], *args: Any) -> Any:
    """Make a call, and record its outcome for these operations."""
    try:
        result = call(*args)
    except BaseException as error:
        cause = error.args[0] if error.args else None
        must_abort = getattr(cause, "txn_requires_abort", lambda: False)()
        for number in numbers:
            tape.done(number, FAILED if must_abort else UNKNOWN)
        raise
    for number in numbers:
        tape.done(number)
    return result


def group_in(metadata: Any) -> str:
    """Return the id in the metadata of a consumer group; "" if they have an unknown form."""
    if not isinstance(metadata, bytes):
        return ""
    start = _GROUP_AT.get(metadata[:7])
    return "" if start is None else metadata[start:].split(b"\0")[0].decode(errors="replace")


class _StandIn:
    """The methods of an existing client, which `Recorded…` extends."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_client"], name)

    def __len__(self) -> int:
        return len(self._client)

    def __bool__(self) -> bool:
        return True

    def __enter__(self) -> Any:
        self._client.__enter__()
        return self

    def __exit__(self, *error: Any) -> Any:
        return self._client.__exit__(*error)


def _passing_on(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._client, name)(*args, **kwargs)

    return method


@cache
def _stand_in(base: type, recorded: type) -> type:
    names = [name for name in vars(recorded) if not name.startswith("_")]
    passing = {name: _passing_on(name) for name in names}
    passing["__class__"] = property(lambda _: base)  # type: ignore[assignment]
    return type(base.__name__, (recorded, type("_StandIn", (_StandIn,), passing)), {})


def stand_in(client: Any, base: type, recorded: type) -> Any:
    """Return an object that records, and passes every call on to a client in C."""
    return _stand_in(base, recorded)(client)


def set_up_producer(producer: Any, tape: Tape, conf: Mapping[str, Any]) -> None:
    """Let a producer record to `tape`. `conf`: its configuration, if that is known."""
    producer._default = conf.get("on_delivery") or _callback_of(producer)
    tape.set_transactional_id(conf.get("transactional.id"))
    _set_servers(producer, tape, conf)
    producer._tape = tape


def set_up_consumer(consumer: Any, tape: Tape, conf: Mapping[str, Any]) -> None:
    """Let a consumer record to `tape`. `conf`: its configuration, if that is known."""
    _set_servers(consumer, tape, conf)
    group = conf.get("group.id")
    if group is None:
        with suppress(Exception):  # a consumer without a group has no metadata
            group = group_in(consumer.consumer_group_metadata()) or None
    consumer._group = group
    if str(conf.get("auto.offset.reset", "")) in EARLIEST:
        tape.begins_at = 0
    consumer._tape = tape


def _callback_of(producer: Any) -> Delivered | None:
    """Return the delivery callback in the configuration of an existing producer.

    It is the one with two arguments: those for errors, statistics and throttling have one.
    """
    client = producer.__dict__.get("_client", producer)
    for found in gc.get_referents(client):
        if callable(found) and not isinstance(found, type):
            with suppress(TypeError, ValueError):
                inspect.signature(found).bind(None, None)
                return found  # type: ignore[no-any-return]
    return None


def _set_servers(client: Any, tape: Tape, conf: Mapping[str, Any]) -> None:
    tape.servers = str(conf.get("bootstrap.servers", ""))
    protocol = str(conf.get("security.protocol", "plaintext"))
    tape.is_secure = protocol.lower() != "plaintext"


def servers_of(client: Any) -> str:
    """Return the brokers that an existing client knows."""
    brokers = client.list_topics(timeout=5).brokers.values()
    return ",".join(f"{broker.host}:{broker.port}" for broker in brokers)


PRODUCER: Final = _Producer
CONSUMER: Final = _Consumer
"""The bases of clients that record."""
