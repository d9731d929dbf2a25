"""Produce (key 0), served versions 3 to 9 (0 to 2 are advertised for librdkafka and refused).

Behaviour: acks 0, 1, -1; min.insync.replicas (R34); idempotent sequences per partition; one record batch of
magic 2 per partition. For a minute after an election a later batch of an unknown producer is refused for five
seconds (LEADER_NOT_AVAILABLE): its first batch may still wait at the former leader. Version notes: 5 log start
offset, 8 record errors (always empty), 9 flexible.
Knowingly ignored: transactional ids (a later issue), compression.type other than "producer", and what is
inside a batch, which stays opaque: a count that its records belie, a codec that its bytes are not.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from minikafka.base.errors import ErrorCode, ProtocolViolation, StorageFailed
from minikafka.base.ports import Clock
from minikafka.broker.replicas import ReplicaManager
from minikafka.broker.services import ClientConnection
from minikafka.replication.partition import Partition
from minikafka.replication.purgatory import (
    ALREADY,
    AnswerQueue,
    MultiProduce,
    Pack,
    PendingPartition,
    Slot,
)
from minikafka.wire.frames import CLIENT_ID
from minikafka.wire.produce import (
    PartitionRecords,
    ProduceRequest,
    decode,
    encode_response,
    single_answer,
    single_records,
    tail_bytes,
)

_VERSION_MIN: Final = 3
_VERSION_MAX: Final = 9
_ZSTD_SINCE: Final = 7
_ZSTD: Final = 4
_ATTRIBUTES_LOW: Final = 22
_MEMO_MAX: Final = 4096
TO_BE_READ: Final = -1
"""`ProduceApi.wall_ms` until the first produce of a tick: most ticks are fetches and need no wall clock."""
_INVALID_ACKS: Final = int(ErrorCode.INVALID_REQUIRED_ACKS)
_UNSUPPORTED_COMPRESSION: Final = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_MAY_PASS: Final = frozenset(
    map(
        int,
        (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_ENOUGH_REPLICAS,
        ),
    )
)
"""Refusals that a client answers by sending the same batch again."""


class ProduceApi:
    """Produce on one connection.

    The memo maps the bytes from the client id to the partition number, of requests for one partition, to
    what they mean: equal bytes mean equal parse. It is bounded, and dropped on any error. A topic that stamps
    the time of the append itself is not answered from it: the time stands in the answer.

    A partition that was refused stays refused until that answer has left: what the client sent meanwhile comes
    after the refused batch, which it sends again first. (Kafka reads the next request only then.)
    """

    __slots__ = (
        "answers",
        "client",
        "clock",
        "close",
        "head_size",
        "memo",
        "now",
        "packs",
        "refused",
        "replicas",
        "wall_ms",
    )

    def __init__(
        self,
        client: ClientConnection,
        replicas: ReplicaManager,
        answers: AnswerQueue,
        clock: Clock,
        close: Callable[[], None],
    ) -> None:
        self.client = client
        self.replicas = replicas
        self.close = close
        self.answers = answers
        self.clock = clock
        self.memo: dict[bytes, tuple[Partition, int, int, int, Pack]] = {}
        self.packs: dict[tuple[bytes, int, int], Pack] = {}
        self.refused: dict[tuple[bytes, int], tuple[int, Slot | MultiProduce]] = {}
        """Error, and the answer that tells it, by topic and partition."""
        self.head_size = 0
        self.now = 0
        self.wall_ms = TO_BE_READ

    def on_request(
        self,
        buf: bytearray,
        view: memoryview,
        version: int,
        correlation: int,
        start: int,
        body: int,
        end: int,
    ) -> None:
        """Append and queue the answer; an error with acks=0, which has no answer, closes the connection."""
        if self.wall_ms == TO_BE_READ:
            self.wall_ms = self.clock.wall_ms()
        if self.refused:
            self._forget_answered()
        known = self.memo.get(
            view[start + CLIENT_ID : start + CLIENT_ID + self.head_size].tobytes()
        )
        if known is not None and known[2] == version and not known[0].log_append_time:
            records = single_records(buf, start + CLIENT_ID + self.head_size, end, version)
            if records >= 0:
                stop = end - 3 if version >= 9 else end
                self._append_one(buf, view, records, stop, correlation, known)
                return
        self._decoded(buf, view, version, correlation, start, body, end)

    def _append_one(
        self,
        buf: bytearray,
        view: memoryview,
        records: int,
        end: int,
        correlation: int,
        known: tuple[Partition, int, int, int, Pack],
    ) -> None:
        partition, acks, _, timeout_ms, pack = known
        purgatory = self.replicas.purgatory
        if not partition.log.pending:
            purgatory.dirty.append(partition)
        try:
            required = partition.append_as_leader(
                buf, view, records, end, acks, self.now, self.wall_ms
            )
        except StorageFailed as failure:
            required = self._disk_failed(partition, failure)
        answers = self.answers
        if required < 0:
            self.memo.clear()
            if acks == 0:
                self.close()
                return
            slot = Slot((pack(correlation, -required, -1, -1),))
            answers.entries.append((None, slot))
            purgatory.ready[answers] = None
            self._note_refusal((partition.topic, partition.tp.partition), -required, slot)
        elif acks < 0:
            answers.entries.append(
                (
                    partition,
                    required,
                    self.now + timeout_ms,
                    correlation,
                    partition.appended_base,
                    pack,
                )
            )
            partition.produce_waits(answers)
            if required <= partition.high_watermark:
                purgatory.ready[answers] = None
        elif acks:
            answers.entries.append(
                (partition, ALREADY, 0, correlation, partition.appended_base, pack)
            )
            purgatory.ready[answers] = None

    def _note_refusal(
        self, key: tuple[bytes, int], error: int, answer: Slot | MultiProduce
    ) -> None:
        if error in _MAY_PASS:
            self.memo.clear()
            self.refused.setdefault(key, (error, answer))

    def _forget_answered(self) -> None:
        owed = [entry[1] for entry in self.answers.entries]
        self.refused = {
            key: refusal
            for key, refusal in self.refused.items()
            if any(refusal[1] is answer for answer in owed)
        }

    def _disk_failed(self, partition: Partition, failure: StorageFailed) -> int:
        self.replicas.purgatory.storage_failed(partition, failure)
        return -int(ErrorCode.KAFKA_STORAGE_ERROR)

    # ---- the general path

    def _decoded(
        self,
        buf: bytearray,
        view: memoryview,
        version: int,
        correlation: int,
        start: int,
        body: int,
        end: int,
    ) -> None:
        if not _VERSION_MIN <= version <= _VERSION_MAX:
            raise ProtocolViolation(f"Produce version {version} is not served")
        request = decode(buf, body, end, version)
        if request.acks not in (-1, 0, 1):
            self._refuse(request, correlation, version, _INVALID_ACKS)
            return
        if request.head_end and version >= _ZSTD_SINCE and not self.refused:
            known = self._remember(
                bytes(view[start + CLIENT_ID : request.head_end]), request, version
            )
            part = request.topics[0][1][0]
            if known is not None and part.start >= 0 and part.end + tail_bytes(version) == end:
                self._append_one(buf, view, part.start, part.end, correlation, known)
                return
        self._append_many(buf, view, request, correlation, version)

    def _remember(
        self, head: bytes, request: ProduceRequest, version: int
    ) -> tuple[Partition, int, int, int, Pack] | None:
        topic, parts = request.topics[0]
        partition = self.replicas.find(topic, parts[0].partition)
        if partition is None or partition.log_append_time or request.transactional_id is not None:
            return None
        if len(self.memo) >= _MEMO_MAX:
            self.memo.clear()
        known = (
            partition,
            request.acks,
            version,
            request.timeout_ms,
            self._pack(topic, parts[0].partition, version),
        )
        self.memo[head] = known
        self.head_size = len(head)
        return known

    def _pack(self, topic: bytes, number: int, version: int) -> Pack:
        key = (topic, number, version)
        pack = self.packs.get(key)
        if pack is None:
            if len(self.packs) >= _MEMO_MAX:
                self.packs.clear()
            pack = self.packs[key] = single_answer(topic, number, version)
        return pack

    def _refuse(self, request: ProduceRequest, correlation: int, version: int, error: int) -> None:
        topics = [
            (topic, [(part.partition, error, -1, -1, -1) for part in parts])
            for topic, parts in request.topics
        ]
        self.answers.reserve().answer = (encode_response(correlation, version, topics),)
        self.replicas.purgatory.ready[self.answers] = None

    def _append_many(
        self,
        buf: bytearray,
        view: memoryview,
        request: ProduceRequest,
        correlation: int,
        version: int,
    ) -> None:
        topics = [
            (
                topic,
                [
                    self._append_part(buf, view, topic, part, request.acks, version)
                    for part in parts
                ],
            )
            for topic, parts in request.topics
        ]
        pending = [part for _, parts in topics for part in parts]
        if request.acks == 0:
            if any(part.error for part in pending):
                self.close()
            return

        def encode(_: list[PendingPartition]) -> bytes:
            return encode_response(
                correlation, version, [(topic, _answers(parts)) for topic, parts in topics]
            )

        multi = MultiProduce(pending, encode)
        self.answers.wait_many(multi, self.now + request.timeout_ms)
        self.replicas.purgatory.ready[self.answers] = None
        for topic, parts in topics:
            for part in parts:
                if part.error:
                    self._note_refusal((topic, part.number), part.error, multi)

    def _append_part(
        self,
        buf: bytearray,
        view: memoryview,
        topic: bytes,
        part: PartitionRecords,
        acks: int,
        version: int,
    ) -> PendingPartition:
        number, start, end = part
        partition = self.replicas.find(topic, number)
        error = 0
        if self.refused and (topic, number) in self.refused:
            error = self.refused[topic, number][0]
        elif partition is None:
            error = self.replicas.error_for_wire(topic, number)
        elif (
            version < _ZSTD_SINCE
            and end - start > _ATTRIBUTES_LOW
            and buf[start + _ATTRIBUTES_LOW] & 7 == _ZSTD
        ):
            error = _UNSUPPORTED_COMPRESSION
        if error or partition is None:
            return PendingPartition(number, error, -1, -1, None, ALREADY)
        if not partition.log.pending:
            self.replicas.purgatory.dirty.append(partition)
        try:
            required = partition.append_as_leader(
                buf, view, start, end, acks, self.now, self.wall_ms
            )
        except StorageFailed as failure:
            required = self._disk_failed(partition, failure)
        if required < 0:
            return PendingPartition(number, -required, -1, -1, None, ALREADY)
        append_time = self.wall_ms if partition.log_append_time else -1
        return PendingPartition(
            number,
            0,
            partition.appended_base,
            append_time,
            partition,
            required if acks < 0 else ALREADY,
        )


def _answers(parts: list[PendingPartition]) -> list[tuple[int, int, int, int, int]]:
    return [
        (
            part.number,
            part.error,
            part.base_offset,
            part.append_time,
            part.partition.log.log_start_offset if part.partition is not None else -1,
        )
        for part in parts
    ]
