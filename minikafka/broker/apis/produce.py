"""Produce (key 0), served versions 3 to 9 (0 to 2 are advertised for librdkafka and refused).

Behaviour: acks 0, 1, -1; min.insync.replicas (R34); idempotent sequences per partition; one record
batch of magic 2 per partition. A batch that comes before an earlier one of its producer is refused
(LEADER_NOT_AVAILABLE) for at least five seconds, and longer by a leader whom no follower follows any more:
Kafka answers OUT_OF_ORDER_SEQUENCE_NUMBER at once, with which librdkafka may end. For one minute after an
election the same holds for a producer that the log does not know, whose first batch may still be waiting
at the former leader. After a retriable error for a producer's first batch, its later ones on that connection
meet the same error, for at most five seconds, until the first one is there again. Version notes: 5 log start
offset, 8 record errors (always empty), 9 flexible. A transactional batch is refused
(INVALID_TXN_STATE): no transaction can be open yet. A batch for `__consumer_offsets` or
`__transaction_state`, which only coordinators write, is INVALID_TOPIC_EXCEPTION. Records that a consumer could not read
are INVALID_RECORD: bytes that are not what the codec says (Kafka: UNKNOWN_SERVER_ERROR), other
records than the header counts, fields that do not fit, more than 256 MiB of them, or a missing key in a
compacted topic. A request whose records take long to read is handled piece by piece, and the
connection's further requests after it. Deliberately ignored: transactional ids, and the offsets inside of a
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal, TypeAlias

from minikafka.base.errors import ErrorCode, ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.base.names import INTERNAL_TOPICS
from minikafka.base.ports import Clock
from minikafka.broker.record_walks import PendingWalks
from minikafka.broker.replicas import ReplicaManager
from minikafka.broker.services import ClientConnection
from minikafka.record.batch import (
    BASE_SEQUENCE,
    HEADER,
    HEADER_BYTES,
    PRODUCER_EPOCH,
    PRODUCER_ID,
)
from minikafka.record.walk import STEPS_AT_ONCE, Walk, judge
from minikafka.replication.early import WAIT_MS
from minikafka.replication.partition import Partition
from minikafka.replication.purgatory import (
    ALREADY,
    AnswerQueue,
    MultiProduce,
    Pack,
    PendingPartition,
)
from minikafka.wire.frames import AGAIN, CLIENT_ID, Again
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
_FLEXIBLE_SINCE: Final = 9
_ZSTD_SINCE: Final = 7
_ZSTD: Final = 4
_CODEC_MASK: Final = 7
_ATTRIBUTES_LOW: Final = 22
"""Position in a batch of the low byte of its attributes, which holds the codec."""
_LAST_SEQUENCE: Final = 0x7FFFFFFF
_MEMO_MAX: Final = 4096
_WALKED_MAX: Final = 256 << 10
"""Bytes of records walked in one tick above which further records are walked piece by piece. As many fit into a
receive buffer, so that usual batches without compression do not meet this limit."""
_WALK_MS: Final = 3
"""Time after which a tick walks no further records."""
_TIMED_BYTES: Final = 8 << 10
"""A batch above this size is reason to look at the clock."""
WALL_UNKNOWN: Final = -1
"""`ProduceApi.wall_ms` until the first produce of a tick: most ticks are fetches and need no wall clock."""
_INVALID_ACKS: Final = int(ErrorCode.INVALID_REQUIRED_ACKS)
_INVALID_TOPIC: Final = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
_INTERNAL_TOPICS: Final = frozenset(name.encode() for name in INTERNAL_TOPICS)
_TOO_LARGE: Final = int(ErrorCode.MESSAGE_TOO_LARGE)
_UNSUPPORTED_COMPRESSION: Final = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
_RETRIABLE: Final = frozenset(
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
"""Errors after which a client sends the same batch again."""
Producer = tuple[int, int, int]
"""Producer id, epoch and first sequence number of a batch; producer id -1 without a producer."""
Held: TypeAlias = Literal[Again.AGAIN] | None
"""AGAIN for a request whose records must be walked first."""
Topics = list[tuple[bytes, list[PendingPartition]]]
"""(topic, its partitions) of one request."""


class SingleHead:
    """The meaning of the first bytes of a request for one partition, from the client id to the partition number."""

    __slots__ = ("acks", "pack", "partition", "timeout_ms", "version")

    def __init__(
        self, partition: Partition, acks: int, version: int, timeout_ms: int, pack: Pack
    ) -> None:
        self.partition = partition
        self.acks = acks
        self.version = version
        self.timeout_ms = timeout_ms
        self.pack = pack


class Refusal:
    """A batch that was refused with a retriable error at `now` (monotonic ms).

    It applies to every batch of the partition until the response is sent. If it was the first batch of an idempotent
    producer, it then applies to the producer's later ones for `WAIT_MS`: the client may have sent them before it
    received the response, and the log, which does not know the producer, would take them. (Those of a known producer
    come too early for the log.)
    """

    __slots__ = ("error", "is_sent", "producer", "response", "until")

    def __init__(self, error: int, producer: Producer, now: int) -> None:
        self.error = error
        self.producer = producer
        self.until = now + WAIT_MS
        self.response: MultiProduce | None = None
        self.is_sent = False

    def applies_to(self, producer: Producer) -> bool:
        """True if this batch is refused too."""
        producer_id, epoch, sequence = producer
        refused_id, refused_epoch, refused_sequence = self.producer
        return not self.is_sent or (
            (producer_id, epoch) == (refused_id, refused_epoch)
            and 0 < (sequence - refused_sequence & _LAST_SEQUENCE) <= _LAST_SEQUENCE // 2
        )

    def is_ended_by(self, producer: Producer) -> bool:
        """True if this batch, to which it does not apply, is the refused one or an earlier one of its producer."""
        return producer[0] == self.producer[0]

    def is_over(self, now: int) -> bool:
        """True if it applies to no batch any more."""
        producer_id, _, sequence = self.producer
        return self.is_sent and (producer_id < 0 or sequence > 0 or now >= self.until)


class ProduceApi:
    """Produce on one connection.

    The fast path is for a request to one partition whose first bytes were seen before on this connection: equal
    bytes have an equal meaning, which `memo` holds. It saves 5.4 of 7.5 µs per request (259 B, 64 per tick) and
    shares `Purgatory.append` and the refusals with the general path. `memo` is bounded and is emptied after every
    error. Topics with LogAppendTime take the general path: their response holds a time.

    After a retriable error every batch of the partition is refused until the error's response has been sent, and
    after that for a producer's first batch also its later ones until the first is there again (`Refusal`): the client
    sends the refused batch again before those that it sent in the meantime. (Kafka reads the next request once the
    response has been sent, and then refuses a later batch or appends it before the refused one.)

    Records are walked before the request's first batch is appended. If that takes long, the connection keeps the
    frame in its buffer and handles nothing behind it. `resume()` gives the frame again when the records are walked.
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
        "pending",
        "purgatory",
        "refused",
        "replicas",
        "resume",
        "verdicts",
        "walked",
        "walks_all",
        "wall_ms",
    )

    def __init__(
        self,
        client: ClientConnection,
        replicas: ReplicaManager,
        answers: AnswerQueue,
        clock: Clock,
        close: Callable[[], None],
        resume: Callable[[], None],
    ) -> None:
        self.client = client
        self.replicas = replicas
        self.purgatory = replicas.purgatory
        self.close = close
        self.resume = resume
        self.walks_all = replicas.config.minikafka_records_check_enable
        self.pending: PendingWalks | None = None
        """The walks for which the connection holds back a frame."""
        self.verdicts: dict[int, int | Walk] = {}
        """The outcome of the walks of the request that is given again, by the position of the records."""
        self.walked = 0
        """Bytes of records walked in this tick."""
        self.answers = answers
        self.clock = clock
        self.memo: dict[bytes, SingleHead] = {}
        self.packs: dict[tuple[bytes, int, int], Pack] = {}
        self.refused: dict[tuple[bytes, int], Refusal] = {}
        """By (topic, partition number), for retriable errors."""
        self.head_size = 0
        self.now = 0
        self.wall_ms = WALL_UNKNOWN

    def on_request(
        self,
        buf: bytearray,
        view: memoryview,
        version: int,
        correlation: int,
        start: int,
        body: int,
        end: int,
    ) -> Held:
        """Append the batches of one request and queue its response.

        With acks=0 there is no response, and an error closes the connection. Return AGAIN if nothing was done yet:
        the frame must be kept where it is and given again after `resume()`. Raises ProtocolViolation.
        """
        if self.wall_ms == WALL_UNKNOWN:
            self.wall_ms = self.clock.wall_ms()
        if self.refused:
            self._forget_sent_refusals()
        head_end = start + CLIENT_ID + self.head_size
        head = self.memo.get(view[start + CLIENT_ID : head_end].tobytes())
        if head is not None and head.version == version and not head.partition.log_append_time:
            records = single_records(buf, head_end, end, version)
            if records >= 0:
                stop = end - 3 if version >= _FLEXIBLE_SINCE else end
                return self._append_one(buf, view, records, stop, correlation, head)
        return self._append_any(buf, view, version, correlation, start, body, end)

    def end_connection(self) -> None:
        """Forget the walks: the connection has ended."""
        if self.pending is not None:
            self.pending.cancel()
            self.pending = None

    def _append_one(
        self,
        buf: bytearray,
        view: memoryview,
        start: int,
        end: int,
        correlation: int,
        head: SingleHead,
    ) -> Held:
        """Append the only batch of a request; return AGAIN if its records must be walked first."""
        partition = head.partition
        acks = head.acks
        size = end - start
        invalid = 0
        if self.walks_all or partition.record_rules.is_demanding:
            verdict = self._verdict(partition, view, start, end)
            if isinstance(verdict, int):
                invalid = verdict
            elif verdict.is_done:
                buf, view, start, end, invalid = _outcome(verdict, buf, view, start, end)
            else:
                self._hold(start, verdict)
                return AGAIN
        required = self.purgatory.append(
            partition, buf, view, start, end, acks, self.now, self.wall_ms, False, invalid
        )
        if required < 0:
            _count_refusal(partition, -required, size)
            number = partition.tp.partition
            refused = self._refuse(partition.topic, number, -required, buf, start, end)
            self._queue([(partition.topic, [refused])], acks, 0, correlation, head.version)
        elif acks:
            answers = self.answers
            if acks < 0:
                partition.produce_waits(answers)
            else:
                required = ALREADY
            answers.entries.append(
                (
                    partition,
                    required,
                    self.now + head.timeout_ms,
                    correlation,
                    partition.appended_base,
                    head.pack,
                )
            )
            if answers.considered != self.now:
                answers.measure(self.now)
            if required <= partition.high_watermark:
                self.purgatory.ready[answers] = None
        else:
            self.purgatory.finished_produces += 1
        return None

    # ---- the general path

    def _append_any(
        self,
        buf: bytearray,
        view: memoryview,
        version: int,
        correlation: int,
        start: int,
        body: int,
        end: int,
    ) -> Held:
        if not _VERSION_MIN <= version <= _VERSION_MAX:
            raise ProtocolViolation(f"Produce version {version} is not served")
        request = decode(buf, body, end, version)
        acks = request.acks
        error = 0 if acks in (-1, 0, 1) else _INVALID_ACKS
        if request.head_end and version >= _ZSTD_SINCE and not self.refused and not error:
            memo_key = bytes(view[start + CLIENT_ID : request.head_end])
            head = self._remember(memo_key, request, version)
            part = request.topics[0][1][0]
            if head is not None and part.start >= 0 and part.end + tail_bytes(version) == end:
                return self._append_one(buf, view, part.start, part.end, correlation, head)
        if not error and not self._walk_all(view, request):
            return AGAIN
        topics: Topics = [
            (
                topic,
                [
                    PendingPartition(part.partition, error)
                    if error
                    else self._append_part(buf, view, topic, part, acks, version)
                    for part in parts
                ],
            )
            for topic, parts in request.topics
        ]
        self._queue(topics, acks, request.timeout_ms, correlation, version)
        return None

    def _remember(self, head: bytes, request: ProduceRequest, version: int) -> SingleHead | None:
        topic, parts = request.topics[0]
        number = parts[0].partition
        partition = self.replicas.find(topic, number)
        if (
            partition is None
            or partition.log_append_time
            or request.transactional_id is not None
            or topic in _INTERNAL_TOPICS
        ):
            return None
        if len(self.memo) >= _MEMO_MAX:
            self.memo.clear()
        pack = self._pack(topic, number, version)
        known = SingleHead(partition, request.acks, version, request.timeout_ms, pack)
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
        if topic in _INTERNAL_TOPICS:
            return PendingPartition(number, _INVALID_TOPIC)
        partition = self.replicas.find(topic, number)
        if self.refused and (topic, number) in self.refused:
            refusal = self.refused[topic, number]
            producer = _producer_of(buf, start, end)
            if refusal.applies_to(producer):
                return PendingPartition(number, refusal.error)
            if refusal.is_ended_by(producer):
                del self.refused[topic, number]
        if partition is None:
            error = self.replicas.error_for_wire(topic, number)
            return self._refuse(topic, number, error, buf, start, end)
        if (
            version < _ZSTD_SINCE
            and end - start > _ATTRIBUTES_LOW
            and buf[start + _ATTRIBUTES_LOW] & _CODEC_MASK == _ZSTD
        ):
            return PendingPartition(number, _UNSUPPORTED_COMPRESSION)
        size = end - start
        verdict = self.verdicts.pop(start, 0)
        invalid = verdict if isinstance(verdict, int) else 0
        if isinstance(verdict, Walk):
            buf, view, start, end, invalid = _outcome(verdict, buf, view, start, end)
        required = self.purgatory.append(
            partition, buf, view, start, end, acks, self.now, self.wall_ms, False, invalid
        )
        if required < 0:
            _count_refusal(partition, -required, size)
            return self._refuse(topic, number, -required, buf, start, end)
        append_time = self.wall_ms if partition.log_append_time else -1
        if acks >= 0:
            required = ALREADY
        return PendingPartition(
            number, 0, partition.appended_base, append_time, partition, required
        )

    # ---- the walk over the records

    def _verdict(self, partition: Partition, view: memoryview, start: int, end: int) -> int | Walk:
        """Return the error code of a batch's records, or their walk, which may not be done yet."""
        known = self.verdicts.pop(start, None) if self.verdicts else None
        if known is not None:
            return known
        rules = partition.record_rules
        verdict = judge(view, start, end, rules, _WALKED_MAX - self.walked, self.wall_ms)
        if isinstance(verdict, int):
            self._count_walked(end - start)
        elif self.walked < _WALKED_MAX:
            for _ in range(STEPS_AT_ONCE):
                if not verdict.step():
                    break
            self._count_walked(verdict.inflated)
        return verdict

    def _count_walked(self, size: int) -> None:
        self.walked += size
        if size > _TIMED_BYTES and self.clock.now() - self.now >= _WALK_MS:
            self.walked = _WALKED_MAX

    def _walk_all(self, view: memoryview, request: ProduceRequest) -> bool:
        """Walk the records for all partitions of a request; return False if that is not done yet."""
        verdicts: dict[int, int | Walk] = {}
        for topic, parts in request.topics:
            for number, start, end in parts:
                partition = self.replicas.find(topic, number)
                if partition is None or start < 0:
                    continue
                if self.walks_all or partition.record_rules.is_demanding:
                    verdicts[start] = self._verdict(partition, view, start, end)
        self.verdicts = verdicts
        walks = [verdict for verdict in verdicts.values() if isinstance(verdict, Walk)]
        return self._are_done(walks)

    def _hold(self, start: int, walk: Walk) -> None:
        self.verdicts[start] = walk
        self._are_done([walk])

    def _are_done(self, walks: Sequence[Walk]) -> bool:
        """Return True if all walks are done; otherwise let the broker go on with them, and hold the frame."""
        left = [walk for walk in walks if not walk.is_done]
        if left:
            self.pending = PendingWalks(left, self._walks_done)
            self.replicas.walks.add(self.pending)
        return not left

    def _walks_done(self) -> None:
        self.pending = None
        self.resume()

    # ---- responses and refusals

    def _queue(
        self, topics: Topics, acks: int, timeout_ms: int, correlation: int, version: int
    ) -> None:
        """Queue the response of a request whose batches are appended or refused."""
        refused = [(topic, part) for topic, parts in topics for part in parts if part.error]
        if refused:
            self.memo.clear()
        if acks == 0:
            self.purgatory.finished_produces += 1
            if refused:
                self.close()
            return

        def encode() -> bytes:
            rows = [(topic, [_row(part) for part in parts]) for topic, parts in topics]
            return encode_response(correlation, version, rows)

        pending = [part for _, parts in topics for part in parts]
        multi = MultiProduce(pending, encode, self.now + timeout_ms)
        self.answers.wait_many(multi)
        self.answers.measure(self.now)
        self.purgatory.ready[self.answers] = None
        for topic, part in refused:
            tp = TopicPartition(topic.decode("utf-8", "replace"), part.number)
            self.replicas.refusals.note("Produce", tp, part.error)
            refusal = self.refused.get((topic, part.number))
            if refusal is not None and refusal.response is None:
                refusal.response = multi

    def _refuse(
        self, topic: bytes, number: int, error: int, buf: bytearray, start: int, end: int
    ) -> PendingPartition:
        """Answer the batch, bytes [start, end) of the buffer, with the error code."""
        if error in _RETRIABLE:
            refusal = Refusal(error, _producer_of(buf, start, end), self.now)
            self.refused.setdefault((topic, number), refusal)
        return PendingPartition(number, error)

    def _forget_sent_refusals(self) -> None:
        """Forget the refusals that apply to nothing any more."""
        waiting = set(map(id, self.answers.entries))
        for refusal in self.refused.values():
            refusal.is_sent = id(refusal.response) not in waiting
        self.refused = {
            key: refusal for key, refusal in self.refused.items() if not refusal.is_over(self.now)
        }


def _producer_of(buf: bytearray, start: int, end: int) -> Producer:
    if end - start < HEADER_BYTES:
        return -1, -1, -1
    header = HEADER.unpack_from(buf, start)
    return header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_SEQUENCE]


def _count_refusal(partition: Partition, error: int, size: int) -> None:
    """Count a refused batch; `size` is the bytes that the producer sent."""
    traffic = partition.log.traffic
    traffic.failed_produce_requests += 1
    if error == _TOO_LARGE:
        traffic.bytes_rejected += size


def _outcome(
    walk: Walk, buf: bytearray, view: memoryview, start: int, end: int
) -> tuple[bytearray, memoryview, int, int, int]:
    """Return the buffer and position of the batch to append, and the error code of its records."""
    if isinstance(walk.verdict, int):
        return buf, view, start, end, walk.verdict
    return walk.verdict, memoryview(walk.verdict), 0, len(walk.verdict), 0


def _row(part: PendingPartition) -> tuple[int, int, int, int, int]:
    """Return the fields of one partition in the response."""
    start = part.partition.log.log_start_offset if part.partition is not None else -1
    return part.number, part.error, part.base_offset, part.append_time, start
