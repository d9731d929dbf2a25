"""Produce (key 0), served versions 3 to 11 (0 to 2 are advertised for librdkafka and refused).

- Supported: acks 0, 1 and -1, min.insync.replicas (R34), idempotent producers, one batch of magic 2 per partition.
- A batch that arrives before an earlier batch of its producer is refused with LEADER_NOT_AVAILABLE for five seconds. If
  the ISR has followers, it is refused for longer: until a follower sends a fetch after the five seconds. Kafka answers
  with OUT_OF_ORDER_SEQUENCE_NUMBER at once, after which librdkafka may end with a fatal error.
- For one minute after an election, later batches of a producer are refused in the same way if the log has no batch of
  this producer. The producer's first batch may still be waiting at the former leader.
- After a retriable error for a producer's first batch, the producer's later batches on the connection get the same
  error until the first batch arrives again, for at most five seconds.
- A batch of a new producer id gets LEADER_NOT_AVAILABLE while the broker keeps `minikafka.producer.ids.max` ids.
- A transactional batch gets INVALID_TXN_STATE, because no transaction can be open yet. A batch for
  `__consumer_offsets` or `__transaction_state`, which only coordinators write, gets INVALID_TOPIC_EXCEPTION.
- Unreadable records get INVALID_RECORD: bytes that the codec cannot decompress (Kafka: UNKNOWN_SERVER_ERROR), more or
  fewer records than the header counts, fields that do not fit into their record, more than 256 MiB of decompressed
  records, or a missing key in a compacted topic.
- A request whose records take long to read, or that has more than 64 partitions or 4 MiB, is handled in steps. The
  connection's next requests wait. A request with more than 10,000 topics and partitions closes the connection.
- Version notes: 5 log start offset, 8 record errors (always empty), 9 flexible.
Deliberately ignored: transactional ids, and the offsets in a produced batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterator
from itertools import chain
from typing import Final, Literal, TypeAlias

from minikafka.base.errors import ErrorCode, ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.base.names import INTERNAL_TOPICS
from minikafka.base.ports import Clock
from minikafka.broker.produce.batch_checks import BatchChecks
from minikafka.broker.produce.large import LargeProduce
from minikafka.broker.produce.refused_batches import RETRIABLE, Refusal, producer_of
from minikafka.broker.produce.response import Topics, encoder
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.requests.services import ClientConnection
from minikafka.broker.turns.scheduler import Scheduler
from minikafka.record.header import CODEC_MASK
from minikafka.record.inflate import ZSTD
from minikafka.record.walk import Walk
from minikafka.replication.partition import Partition
from minikafka.replication.purgatory import (
    ALREADY,
    NEVER,
    AnswerQueue,
    MultiProduce,
    Pack,
    PendingPartition,
)
from minikafka.wire.frames import AGAIN, CLIENT_ID, Again
from minikafka.wire.produce import (
    PartitionRecords,
    ProduceRequest,
    decode_in_steps,
    single_answer,
    single_records,
    tail_bytes,
)

logger = logging.getLogger(__name__)

_VERSION_MIN: Final = 3
_VERSION_MAX: Final = 11
_FLEXIBLE_SINCE: Final = 9
_ZSTD_SINCE: Final = 7
_ATTRIBUTES_LOW: Final = 22
"""Position in a batch of the low byte of its attributes, which holds the compression codec."""
_MEMO_MAX: Final = 4096
_MEMO_BYTES: Final = 512 << 10
"""Maximum bytes of all heads that a connection remembers. A client can send a different long client id each time."""
_LARGE_BYTES: Final = 4 << 20
"""A request of more bytes than this is handled in steps, whatever its number of partitions."""
_PARTS_MAX: Final = 64
"""A request that raises `ProduceApi.parts` above this number is handled in steps."""
LARGE_STEP: Final = 4
"""Number of partitions that one step of a large request handles. A step takes up to 3 ms if log files are created."""
WALL_UNKNOWN: Final = -1
"""Value of `ProduceApi.wall_ms` until the first Produce request of a tick reads the wall clock."""
_INVALID_ACKS: Final = int(ErrorCode.INVALID_REQUIRED_ACKS)
_INVALID_TOPIC: Final = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
_INTERNAL_TOPICS: Final = frozenset(name.encode() for name in INTERNAL_TOPICS)
_TOO_LARGE: Final = int(ErrorCode.MESSAGE_TOO_LARGE)
_UNSUPPORTED_COMPRESSION: Final = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
Held: TypeAlias = Literal[Again.AGAIN] | None
"""Result of `on_request`: None if the request was handled, AGAIN if the frame must be passed again after `resume()`."""
Steps: TypeAlias = Generator[None, None, None]


class SingleHead:
    """The decoded head of a Produce request for one partition, from the client id to the partition number."""

    __slots__ = ("acks", "pack", "partition", "timeout_ms", "version")

    def __init__(
        self, partition: Partition, acks: int, version: int, timeout_ms: int, pack: Pack
    ) -> None:
        self.partition = partition
        self.acks = acks
        self.version = version
        self.timeout_ms = timeout_ms
        self.pack = pack


class ProduceApi:
    """The handler of Produce requests on one connection.

    The fast path handles a request to one partition if an earlier request of the connection began with the same
    bytes: `memo` maps these bytes to the decoded head. The fast path saves 5.4 of 7.5 µs per request (259 B, 64
    at a time). Both paths append with `Purgatory.append` and refuse batches in the same way. `memo` is bounded and is
    emptied after every error. Topics with LogAppendTime take the general path, because the response holds a time.

    After a retriable error for one batch, all later batches of the partition get the same error (`Refusal`)
    until the response with the error has been sent. If the refused batch was the first batch of its producer,
    the producer's later batches are refused until the first batch arrives again, for at most five seconds. The
    client thus sends the refused batch again before the later batches. (Kafka reads the next request after it has
    sent the response, and may append a later batch before the refused batch.)

    A walk (`record/walk.py`) checks the records of one batch before the batch is appended. If the walks of a
    request take long, the request is handled in steps (`LargeProduce`), one partition after the other: each batch
    is appended as soon as it is walked. The connection keeps the request in its buffer and handles no later
    request. After the last step, `resume()` makes the connection pass the request to `on_request` again.
    """

    __slots__ = (
        "answers",
        "checks",
        "client",
        "clock",
        "close",
        "head_size",
        "is_handled",
        "large",
        "memo",
        "now",
        "packs",
        "parts",
        "pending",
        "purgatory",
        "refused",
        "replicas",
        "resume",
        "walks_all",
        "wall_ms",
    )

    def __init__(
        self,
        client: ClientConnection,
        replicas: ReplicaManager,
        answers: AnswerQueue,
        clock: Clock,
        turns: Scheduler,
        close: Callable[[], None],
        resume: Callable[[], None],
    ) -> None:
        self.client = client
        self.replicas = replicas
        self.purgatory = replicas.purgatory
        self.close = close
        self.resume = resume
        self.walks_all = replicas.config.minikafka_records_check_enable
        self.large = LargeProduce(
            turns, clock, self.purgatory, self._large_done, self._large_failed
        )
        self.is_handled = False
        """True if the frame that was held back has been handled in steps and needs no further work."""
        self.pending: LargeProduce | None = None
        """The work that must end before the held-back frame is handled; None if no frame is held back."""
        self.parts = 0
        """Number of partitions that took the general path in this tick."""
        self.checks = BatchChecks(replicas.walks, clock, self.large.resume)
        self.answers = answers
        self.clock = clock
        self.memo: dict[bytes, SingleHead] = {}
        self.packs: dict[tuple[bytes, int, int], Pack] = {}
        self.refused: dict[tuple[bytes, int], Refusal] = {}
        """The refusals with a retriable error, by (topic, partition number)."""
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

        With acks=0 there is no response, and an error closes the connection. Return AGAIN if the request is
        not handled yet. The caller then keeps the frame in place, and passes it again after `resume()`.
        Raises ProtocolViolation.
        """
        if self.wall_ms == WALL_UNKNOWN:
            self.wall_ms = self.clock.wall_ms()
            if self.refused:  # once per tick is enough: a tick sends responses only at its end
                self._forget_sent_refusals()
            if self.is_handled:  # a held-back frame is the first of its tick
                self.is_handled = False
                return None
        head_end = start + CLIENT_ID + self.head_size
        head = self.memo.get(view[start + CLIENT_ID : head_end].tobytes())
        if head is not None and head.version == version and not head.partition.log_append_time:
            records = single_records(buf, head_end, end, version)
            if records >= 0:
                stop = end - 3 if version >= _FLEXIBLE_SINCE else end
                if self._append_one(buf, view, records, stop, correlation, head):
                    return None
                decoding = decode_in_steps(buf, body, end, version)
                return self._begin_steps(buf, view, decoding, correlation, version)
        return self._append_any(buf, view, version, correlation, start, body, end)

    def end_connection(self) -> None:
        """Drop the work in progress, because the connection has ended."""
        if self.pending is not None:
            self.pending.cancel()
            self.pending = None
        self.checks.end()
        self.refused.clear()  # break the reference cycle of refusals and responses

    def _append_one(
        self,
        buf: bytearray,
        view: memoryview,
        start: int,
        end: int,
        correlation: int,
        head: SingleHead,
    ) -> bool:
        """Append the only batch of a request. Return False if later turns of the event loop must finish its check."""
        partition = head.partition
        acks = head.acks
        size = end - start
        invalid = 0
        if self.walks_all or partition.record_rules.is_demanding:
            verdict = self.checks.verdict(
                partition.record_rules, view, start, end, self.now, self.wall_ms
            )
            if isinstance(verdict, int):
                invalid = verdict
            elif verdict.is_done:
                buf, view, start, end, invalid = _outcome(verdict, buf, view, start, end)
            else:
                self.checks.hold(start, verdict)
                return False
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
        return True

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
            raise ProtocolViolation(f"Produce version {version} is not supported")
        decoding = decode_in_steps(buf, body, end, version)
        request = next(decoding)
        if request is not None:
            self.parts += sum(len(parts) for _, parts in request.topics)
        if request is None or end - body > _LARGE_BYTES or self.parts > _PARTS_MAX:
            rest = chain((request,), decoding)
            has_many = request is None
            return self._begin_steps(buf, view, rest, correlation, version, has_many=has_many)
        acks = request.acks
        is_valid = -1 <= acks <= 1
        if request.head_end and version >= _ZSTD_SINCE and not self.refused and is_valid:
            memo_key = bytes(view[start + CLIENT_ID : request.head_end])
            head = self._remember(memo_key, request, version)
            part = request.topics[0][1][0]
            if head is not None and part.start >= 0 and part.end + tail_bytes(version) == end:
                if self._append_one(buf, view, part.start, part.end, correlation, head):
                    return None
                return self._begin_steps(buf, view, iter((request,)), correlation, version)
        if is_valid and not self._walk_all(view, request):
            return self._begin_steps(buf, view, iter((request,)), correlation, version)
        topics: Topics = [
            (
                topic,
                [self._append_part(buf, view, topic, part, acks, version) for part in parts],
            )
            for topic, parts in request.topics
        ]
        self.checks.clear()
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
        if len(self.memo) >= _MEMO_MAX or len(self.memo) * len(head) >= _MEMO_BYTES:
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
        if not -1 <= acks <= 1:
            return PendingPartition(number, _INVALID_ACKS)
        if topic in _INTERNAL_TOPICS:
            return PendingPartition(number, _INVALID_TOPIC)
        partition = self.replicas.find(topic, number)
        if self.refused and (topic, number) in self.refused:
            refusal = self.refused[topic, number]
            producer = producer_of(buf, start, end)
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
            and buf[start + _ATTRIBUTES_LOW] & CODEC_MASK == ZSTD
        ):
            return PendingPartition(number, _UNSUPPORTED_COMPRESSION)
        size = end - start
        verdict = self.checks.taken(start)
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

    def _walk_all(self, view: memoryview, request: ProduceRequest) -> bool:
        """Check the records of a request, where required. Return False if one of the checks takes longer.

        Then the later checks have not begun, and the recompressed batches of the earlier ones are dropped.
        """
        checks = self.checks
        for topic, parts in request.topics:
            for number, start, end in parts:
                partition = self.replicas.find(topic, number)
                if partition is None or start < 0:
                    continue
                if self.walks_all or partition.record_rules.is_demanding:
                    rules = partition.record_rules
                    verdict = checks.verdict(rules, view, start, end, self.now, self.wall_ms)
                    if isinstance(verdict, Walk) and not verdict.is_done:
                        checks.keep_valid()
                        checks.hold(start, verdict)
                        return False
                    checks.keep(start, verdict)
        return True

    # ---- requests that are handled in steps

    def _begin_steps(
        self,
        buf: bytearray,
        view: memoryview,
        decoding: Iterator[ProduceRequest | None],
        correlation: int,
        version: int,
        *,
        has_many: bool = False,
    ) -> Literal[Again.AGAIN]:
        """Begin to handle a request in steps: it is large, or its records take long to check."""
        self.pending = self.large
        steps = self._large_steps(buf, view, decoding, correlation, version)
        self.large.begin(steps, has_many=has_many)
        return AGAIN

    def _large_steps(
        self,
        buf: bytearray,
        view: memoryview,
        decoding: Iterator[ProduceRequest | None],
        correlation: int,
        version: int,
    ) -> Steps:
        """Decode a request, queue an entry for its response, then append partition by partition."""
        while (request := next(decoding)) is None:
            yield
        topics: Topics = [(topic, []) for topic, _ in request.topics]
        multi = MultiProduce([], encoder(topics, correlation, version), NEVER)
        if request.acks:
            self.answers.wait_many(multi)
        for (topic, parts), (_, answers) in zip(request.topics, topics, strict=True):
            for part in parts:
                yield from self._walked(view, topic, part)
                answer = self._append_part(buf, view, topic, part, request.acks, version)
                self.checks.release(part.start)
                answers.append(answer)
                if request.acks:
                    self.answers.add_part(multi, answer)
                else:
                    multi.parts.append(answer)
                if answer.error:
                    self._note_refused(topic, answer, multi)
                if not len(multi.parts) % LARGE_STEP:
                    yield
                    self.now, self.wall_ms = self.clock.now(), self.clock.wall_ms()
        multi.deadline = self.now + request.timeout_ms
        self._finish_large(multi, request.acks)

    def _finish_large(self, multi: MultiProduce, acks: int) -> None:
        is_refused = any(part.error for part in multi.parts)
        if is_refused:
            self.memo.clear()
        if acks == 0:
            self._finish_unanswered(is_refused)
        else:
            self.purgatory.ready[self.answers] = None

    def _finish_unanswered(self, is_refused: bool) -> None:
        self.purgatory.finished_produces += 1
        if is_refused:
            self.close()

    def _walked(self, view: memoryview, topic: bytes, part: PartitionRecords) -> Steps:
        """Wait until the records of one partition are checked. `checks` keeps the outcome until the append."""
        number, start, end = part
        partition = self.replicas.find(topic, number)
        if partition is None or start < 0:
            return
        if self.walks_all or partition.record_rules.is_demanding:
            self.checks.walked = 0
            rules = partition.record_rules
            verdict = self.checks.verdict(rules, view, start, end, self.now, self.wall_ms)
            if isinstance(verdict, Walk) and not verdict.is_done:
                self.checks.hold(start, verdict)
                self.large.wait()
                yield
                self.now, self.wall_ms = self.clock.now(), self.clock.wall_ms()
            self.checks.keep(start, verdict)

    def _large_done(self) -> None:
        self.is_handled = True
        self.pending = None
        self.checks.clear()
        self.resume()

    def _large_failed(self, reason: str) -> None:
        self.pending = None
        logger.info("closing connection from %s: %s", self.client.peer, reason)
        self.close()

    # ---- responses and refusals

    def _queue(
        self, topics: Topics, acks: int, timeout_ms: int, correlation: int, version: int
    ) -> None:
        """Queue the response to a request whose batches were appended or refused. With acks=0, there is no response."""
        refused = [(topic, part) for topic, parts in topics for part in parts if part.error]
        if refused:
            self.memo.clear()
        if acks == 0:
            self._finish_unanswered(bool(refused))
            return
        multi = MultiProduce(
            [part for _, parts in topics for part in parts],
            encoder(topics, correlation, version),
            self.now + timeout_ms,
        )
        self.answers.wait_many(multi)
        self.answers.measure(self.now)
        self.purgatory.ready[self.answers] = None
        for topic, part in refused:
            self._note_refused(topic, part, multi)

    def _note_refused(self, topic: bytes, part: PendingPartition, response: MultiProduce) -> None:
        tp = TopicPartition(topic.decode("utf-8", "replace"), part.number)
        self.replicas.refusals.note("Produce", tp, part.error)
        refusal = self.refused.get((topic, part.number))
        if refusal is not None and refusal.response is None:
            refusal.response = response

    def _refuse(
        self, topic: bytes, number: int, error: int, buf: bytearray, start: int, end: int
    ) -> PendingPartition:
        """Return the error as the batch's result. If the error is retriable, also refuse later batches (`Refusal`)."""
        if error in RETRIABLE:
            refusal = Refusal(error, producer_of(buf, start, end), self.now)
            self.refused.setdefault((topic, number), refusal)
        return PendingPartition(number, error)

    def _forget_sent_refusals(self) -> None:
        """Mark each `Refusal` (refused batch) whose response was sent; drop each one that affects no later batch."""
        waiting = set(map(id, self.answers.entries))
        for refusal in self.refused.values():
            refusal.is_sent = id(refusal.response) not in waiting
        self.refused = {
            key: refusal for key, refusal in self.refused.items() if not refusal.is_over(self.now)
        }


def _count_refusal(partition: Partition, error: int, size: int) -> None:
    """Count a refused batch in the traffic metrics. `size` is the number of bytes that the producer sent."""
    traffic = partition.log.traffic
    traffic.failed_produce_requests += 1
    if error == _TOO_LARGE:
        traffic.bytes_rejected += size


def _outcome(
    walk: Walk, buf: bytearray, view: memoryview, start: int, end: int
) -> tuple[bytearray, memoryview, int, int, int]:
    """Return (buffer, view, start, end, error code) of the batch to append. `walk` has checked the batch's records."""
    if isinstance(walk.verdict, int):
        return buf, view, start, end, walk.verdict
    return walk.verdict, memoryview(walk.verdict), 0, len(walk.verdict), 0
