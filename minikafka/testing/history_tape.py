"""The recording of one client: its operations as events, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any, Final

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import FAILED, OK, OPAQUE, UNKNOWN, Event, Recorder

EARLIEST: Final = ("earliest", "beginning", "smallest")
"""The values of auto.offset.reset with which a consumer begins at the start of a partition."""


class Tape(Recorder):
    """The history of one client. Its methods may be called by any thread.

    `group`: the group of a consumer that subscribes; None while partitions are assigned by hand. `begins_at`: the
    offset at which a consumer without a committed offset begins, None for the end. After `stop`, only outcomes are
    recorded.
    """

    def __init__(self, name: str, emit: Callable[[Event], None], now: Callable[[], float]) -> None:
        super().__init__(name, None, str, now)
        self.name = name
        self.servers = ""
        """host:port,… of brokers, where the client knows them."""
        self.is_secure = False
        self.group: str | None = None
        self.begins_at: int | None = None
        self._lock = threading.RLock()
        self._emit = emit
        self._is_stopped = False
        self._wanted: set[tuple[str, int | None]] = set()
        self._fresh: set[TopicPartition] = set()
        """Partitions whose position was changed to an unknown offset: the next record tells it."""

    def emit(self, event: Event) -> None:
        """Add an event to the history."""
        self._emit(event)

    def stop(self) -> None:
        """Record no further operation, but the outcomes of those that have begun."""
        self._is_stopped = True

    def set_transactional_id(self, name: str | None) -> None:
        """Set the id that transactions show."""
        self._transactional_id = name

    # Producers

    def sending(
        self, topic: str, value: Any, key: Any, partition: int | None, *, is_final: bool
    ) -> int:
        """Record a send, and return its number; -1 after `stop`.

        `is_final`: value and key will be sent as they are. Otherwise the library converts them first.
        """
        with self._lock:
            if self._is_stopped:
                return -1
            place = partition if partition is not None and partition >= 0 else None
            if is_final:
                return self.write(topic, bytes_of(value), place, bytes_of(key))
            return self.write(topic, None, place, is_opaque=True)

    def converted(self, number: int, value: Any, key: Any) -> None:
        """Record the bytes of a send whose value and key the library has converted."""
        with self._lock:
            if number in self._invoked and self._invoked[number].digest == OPAQUE:
                self.written(number, bytes_of(value), bytes_of(key))

    def sent(self, number: int) -> None:
        """Record that the call of a send has returned."""
        with self._lock:
            self.returned(number)

    def done(self, number: int, outcome: str = OK, **facts: Any) -> None:
        """Record the outcome of an operation, once."""
        with self._lock:
            if number in self._invoked:
                self.ended(number, outcome, **facts)

    def began(self) -> None:
        """Record that a transaction has begun."""
        with self._lock:
            if not self._is_stopped:
                self.ended(self.begin())

    def ending(self, is_commit: bool) -> int:
        """Record that the client asks for the end of its transaction; return the number."""
        with self._lock:
            if self._is_stopped or self._transaction is None:
                return -1
            return self.commit() if is_commit else self.abort()

    def sending_offsets(self, group: str, offsets: Iterable[tuple[str, int, int]]) -> list[int]:
        """Record offsets that become part of the transaction; return their numbers."""
        with self._lock:
            if self._is_stopped:
                return []
            return [self.offsets(group, *place) for place in offsets]

    # Consumers

    def wants(self, topics: Iterable[str]) -> None:
        """Record that a consumer subscribes to topics."""
        for topic in topics:
            self._want(topic, None)

    def assigned_by_hand(self, partitions: Iterable[tuple[str, int, int]]) -> None:
        """Record that partitions were assigned without a group. A negative offset is none."""
        self.group = None
        for topic, partition, offset in partitions:
            self._want(topic, partition)
            self.moved(topic, partition, offset)

    def _want(self, topic: str, partition: int | None) -> None:
        with self._lock:
            if self._is_stopped or (topic, partition) in self._wanted:
                return
            self._wanted.add((topic, partition))
            self.assigned(topic, partition, self.begins_at, self.group)

    def moved(self, topic: str, partition: int, offset: int = -1) -> None:
        """Record that the position of a consumer was set; to an unknown offset if `offset` is negative."""
        with self._lock:
            if self._is_stopped:
                return
            if offset >= 0:
                self._fresh.discard(TopicPartition(topic, partition))
                self.seek(topic, partition, offset, self.group)
            else:
                self._fresh.add(TopicPartition(topic, partition))

    def received(
        self, topic: str, partition: int, offset: int, value: Any, key: Any, *, is_raw: bool
    ) -> None:
        """Record a record that the application received. `is_raw`: the value has the bytes of the log."""
        tp = TopicPartition(topic, partition)
        with self._lock:
            if self._is_stopped:
                return
            if tp in self._fresh:
                self._fresh.discard(tp)
                self.seek(topic, partition, offset, self.group)
            content = (bytes_of(value), bytes_of(key)) if is_raw else (None, None)
            self.read(topic, partition, offset, *content, self.group, is_opaque=not is_raw)

    def committed(self, offsets: Iterable[tuple[str, int, int]]) -> None:
        """Record offsets that a consumer has committed for its group."""
        with self._lock:
            if self._is_stopped or self.group is None:
                return
            for place in offsets:
                self.ended(self.offsets(self.group, *place))

    def unwanted(self) -> None:
        """Record that a consumer gave up its subscription and its partitions."""
        with self._lock:
            if self._wanted and not self._is_stopped:
                self._wanted.clear()
                self.closed()

    def gone(self) -> None:
        """Record that the client has ended. What is pending never gets an outcome."""
        with self._lock:
            if not self._is_stopped:
                self._wanted.clear()
                self.closed()
                self.stop()


def bytes_of(value: Any) -> bytes | None:
    """Return the bytes that a library sends for this value."""
    if isinstance(value, str):
        return value.encode()
    return None if value is None else bytes(value)


def outcome_of(error: BaseException, certain: Iterable[str]) -> str:
    """Return FAILED if the name of an error says that nothing was written, else UNKNOWN."""
    return FAILED if type(error).__name__ in certain else UNKNOWN
