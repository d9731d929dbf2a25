"""Transactional clients that write histories, and the logs of two replicas, which a test may spoil."""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import OK, Recorder, digest_of, parse
from minikafka.checks.isolation.logs import ABORTED, COMMITTED, RECORD, Stored
from minikafka.checks.isolation.operations import OFFSETS_TOPIC, offset_digest
from minikafka.checks.isolation.verdict import Verdict, check

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


class World:
    """`logs`: the log of each partition. `second`: the log of the second replica where it differs."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.logs: dict[TopicPartition, list[Stored]] = {}
        self.second: dict[TopicPartition, Sequence[Stored]] = {}
        self._time = 0.0

    def now(self) -> float:
        """Return a time that is later than every time before."""
        self._time += 1
        return self._time

    def client(self, name: str) -> Client:
        return Client(self, name)

    def append(
        self, tp: TopicPartition, kind: str, digest: bytes = b"", producer: tuple[int, int] = (1, 0)
    ) -> int:
        """Append an entry to the log, and return its offset."""
        log = self.logs.setdefault(tp, [])
        offset = log[-1].offset + 1 if log else 0
        log.append(Stored(offset, kind, digest, *producer, producer[0] >= 0))
        return offset

    def verdict(self) -> Verdict:
        replicas = {tp: {1: log, 2: self.second.get(tp, log)} for tp, log in self.logs.items()}
        return check(parse(self.lines), replicas)

    def anomalies(self) -> dict[str, int]:
        return dict(self.verdict().counts)


class Client:
    """A client with a producer id of its own."""

    _last_id = 0

    def __init__(self, world: World, name: str) -> None:
        Client._last_id += 1
        self.producer = (Client._last_id, 0)
        self.history = Recorder(name, name, world.lines.append, world.now)
        self._world = world
        self._touched: set[TopicPartition] = set()

    def begin(self) -> None:
        self.history.ended(self.history.begin())

    def write(
        self,
        value: str,
        tp: TopicPartition = TP,
        *,
        outcome: str = OK,
        stored: bool = True,
        knows_offset: bool = True,
    ) -> int:
        """Write a record, and return its offset. `stored` is False if the log lacks the record."""
        number = self.history.write(tp.topic, value.encode(), tp.partition)
        offset = len(self._world.logs.get(tp, ()))
        if stored:
            offset = self._world.append(tp, RECORD, digest_of(value.encode()), self.producer)
            self._touched.add(tp)
        self.history.ended(number, outcome, offset=offset if knows_offset else -1)
        return offset

    def commit_offset(self, offset: int) -> None:
        """Commit an offset of the group g for `TP` as part of the transaction."""
        number = self.history.offsets("g", *TP, offset)
        digest = offset_digest("g", TP, offset)
        self._world.append(OFFSETS, RECORD, digest, self.producer)
        self._touched.add(OFFSETS)
        self.history.ended(number)

    def mark(self, kind: str, *partitions: TopicPartition) -> None:
        """Write the marker to these partitions, otherwise to all with records of the transaction."""
        for tp in partitions or sorted(self._touched):
            self._world.append(tp, kind, b"", self.producer)
            self._touched.discard(tp)

    def commit(self, outcome: str = OK, *, marker: str = COMMITTED) -> None:
        number = self.history.commit()
        self.mark(marker)
        self.history.ended(number, outcome)

    def abort(self, *, marker: str = ABORTED) -> None:
        number = self.history.abort()
        self.mark(marker)
        self.history.ended(number)

    def commit_all(self, *values: str) -> None:
        """Write these records in one transaction and commit it."""
        self.begin()
        for value in values:
            self.write(value)
        self.commit()

    def read(self, offset: int, value: str, tp: TopicPartition = TP) -> None:
        self.history.read(*tp, offset, value.encode())
