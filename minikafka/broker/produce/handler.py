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
- The first transactional batch of a transaction in a partition waits until the transaction coordinator has confirmed
  that the partition is in the transaction (KIP-890, part 1). The connection's next requests wait too (`guards.py`).
- A batch for `__consumer_offsets` or `__transaction_state`, which only coordinators write, gets
  INVALID_TOPIC_EXCEPTION.
- Unreadable records get INVALID_RECORD: bytes that the codec cannot decompress (Kafka: UNKNOWN_SERVER_ERROR), more or
  fewer records than the header counts, fields that do not fit into their record, more than 256 MiB of decompressed
  records, or a missing key in a compacted topic.
- A request whose records take long to read, or that has more than 64 partitions or 4 MiB, is handled in steps. The
  connection's next requests wait. A request with more than 10,000 topics and partitions closes the connection.
- The response names the records without a key for a compacted topic (INVALID_RECORD), and the records with a timestamp
  outside of the topic's limits (INVALID_TIMESTAMP), with Kafka's texts (KIP-467). One response names at most 1,000
  records: the check of a batch ends when it has found so many.
- A batch with the timestamp type LogAppendTime, which only a broker may set, gets the topic's type CreateTime. If the
  topic has LogAppendTime too, every record gets INVALID_TIMESTAMP.
- Bytes after the batch are ignored, unless another batch follows (INVALID_RECORD) or they begin no batch
  (CORRUPT_MESSAGE).
- Version notes: 5 log start offset, 8 record errors, 9 flexible, 10 the current leader and its address with
  NOT_LEADER_OR_FOLLOWER (KIP-951), 11 TRANSACTION_ABORTABLE.
Deliberately ignored: the offsets in a produced batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final, Literal, TypeAlias

from minikafka.base.errors import ErrorCode, ProtocolViolation
from minikafka.base.model import TopicPartition
from minikafka.base.names import INTERNAL_TOPICS
from minikafka.base.ports import Clock
from minikafka.broker.clients.access import Access, Basis
from minikafka.broker.coordinators.verification import TransactionVerifier
from minikafka.broker.produce.batch_checks import BatchChecks
from minikafka.broker.produce.guards import NO_ID, Found, Guards
from minikafka.broker.produce.large import LargeProduce, Steps
from minikafka.broker.produce.refused_batches import RETRIABLE, BatchRefusal, producer_of
from minikafka.broker.produce.response import Topics, encoder, leader_finder, single_pack
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.services import ClientConnection
from minikafka.broker.turns import Scheduler
from minikafka.kafka.records.batch import end_of_batch
from minikafka.kafka.records.header import CODEC_MASK
from minikafka.kafka.records.inflate import ZSTD
from minikafka.kafka.records.rules import LISTED_MAX, RecordErrors
from minikafka.kafka.wire.framing import AGAIN, CLIENT_ID, Again
from minikafka.kafka.wire.produce import (
    PartitionRecords,
    ProduceRequest,
    decode_in_steps,
    single_records,
    tail_bytes,
)
from minikafka.security.operations import TOPIC, TRANSACTIONAL_ID, WRITE, need
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.purgatory import (
    ALREADY,
    NEVER,
    AnswerQueue,
    MultiProduce,
    Pack,
    PendingPartition,
)
from minikafka.storage.replication.verification import NO_GUARD, NOT_TRANSACTIONAL

logger = logging.getLogger(__name__)

_VERSION_MIN: Final = 3
_VERSION_MAX: Final = 11
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
_NO_TOPIC: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_NO_TRANSACTION: Final = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_WRITE: Final = need("Produce", WRITE, TOPIC)
_TRANSACTION: Final = need("Produce", WRITE, TRANSACTIONAL_ID)
_INTERNAL_TOPICS: Final = frozenset(name.encode() for name in INTERNAL_TOPICS)
_TOO_LARGE: Final = int(ErrorCode.MESSAGE_TOO_LARGE)
_UNSUPPORTED_COMPRESSION: Final = int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
Held: TypeAlias = Literal[Again.AGAIN] | None
"""Result of `on_request`: None if the request was handled, AGAIN if the frame must be passed again after `resume()`."""


class SingleHead:
    """The decoded head of a Produce request for one partition, from the client id to the partition number.

    `tail`: number of bytes after the records. `guard`: of batches that need no verification.
    """

    __slots__ = ("acks", "guard", "pack", "partition", "tail", "timeout_ms", "version")

    def __init__(
        self,
        partition: Partition,
        acks: int,
        version: int,
        timeout_ms: int,
        pack: Pack,
        guard: int,
    ) -> None:
        self.partition = partition
        self.acks = acks
        self.version = version
        self.timeout_ms = timeout_ms
        self.pack = pack
        self.guard = guard
        self.tail = tail_bytes(version)


class ProduceApi:
    """The handler of Produce requests on one connection.

    All batches are checked and appended by `_append`. Two ways lead to it, and differ only in the response:

    - `_steps` handles any request, partition by partition. It is a generator that runs at once. If the request is
      large, or the check of a batch takes long, the later steps are taken in later turns (`LargeProduce`). The
      connection then keeps the request in its buffer and handles no later request. After the last step, `resume()`
      makes the connection pass the request to `on_request` again.
    - `_append_one` handles a request for one partition whose batch is valid. Its response is one tuple, and `memo`, a
      cache, has the decoded head of each request that began with the same bytes. This saves 9.8 of 15.9 µs per request.

    `memo` is bounded and is emptied after every error. Topics with LogAppendTime take the general way, because the
    response holds a time. After a retriable error for one batch, all later batches of the partition get the same
    error (`BatchRefusal`) until the response with the error has been sent. If the refused batch was the first of its
    producer, the producer's later batches are refused until the first batch arrives again, for at most five seconds.
    The client thus sends the refused batch again before the later batches. (Kafka reads the next request after it has
    sent the response, and may append a later batch before the refused batch.)
    """

    __slots__ = (
        "answers",
        "checks",
        "client",
        "clock",
        "close",
        "find_leader",
        "guards",
        "head_size",
        "is_handled",
        "large",
        "memo",
        "memo_basis",
        "now",
        "packs",
        "parts",
        "purgatory",
        "refused",
        "replicas",
        "resume",
        "transactions",
        "wall_ms",
        "writes",
    )

    def __init__(
        self,
        client: ClientConnection,
        replicas: ReplicaManager,
        answers: AnswerQueue,
        clock: Clock,
        turns: Scheduler,
        verifier: TransactionVerifier,
        close: Callable[[], None],
        resume: Callable[[], None],
        access: Access,
    ) -> None:
        self.writes = access.verdicts(client, _WRITE)
        """The topics that the client may write; None without an authorizer."""
        self.transactions = access.verdicts(client, _TRANSACTION)
        self.memo_basis: Basis | None = None
        """What the verdicts depended on when the heads in `memo` were decoded."""
        self.client = client
        self.replicas = replicas
        self.purgatory = replicas.purgatory
        self.close = close
        self.resume = resume
        self.large = LargeProduce(
            turns, clock, self.purgatory, self._large_done, self._large_failed
        )
        self.guards = Guards(replicas.find, verifier, self.large.resume, self.transactions)
        self.is_handled = False
        """True if the frame that was held back has been handled in steps and needs no further work."""
        self.parts = 0
        """Number of partitions that took the general path in this tick."""
        self.checks = BatchChecks(
            replicas.walks,
            clock,
            self.large.resume,
            checks_all=replicas.config.minikafka_records_check_enable,
        )
        self.find_leader = leader_finder(replicas.refusals, client.listener)
        self.answers = answers
        self.clock = clock
        self.memo: dict[bytes, SingleHead] = {}
        self.packs: dict[tuple[bytes, int, int], Pack] = {}
        self.refused: dict[tuple[bytes, int], BatchRefusal] = {}
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
            if self.writes is not None and self.writes.basis != self.memo_basis:
                self.memo.clear()
                self.memo_basis = self.writes.basis
            if self.is_handled:  # a held-back frame is the first of its tick
                self.is_handled = False
                return None
        head_end = start + CLIENT_ID + self.head_size
        head = self.memo.get(view[start + CLIENT_ID : head_end].tobytes())
        if head is not None and head.version == version and not head.partition.log_append_time:
            records = single_records(buf, head_end, end, version)
            if records >= 0 and self._append_one(view, records, end - head.tail, correlation, head):
                return None
        return self._append_any(buf, view, version, correlation, start, body, end)

    def end_connection(self) -> None:
        """Drop the work in progress, because the connection has ended."""
        self.large.cancel()
        self.checks.end()
        self.refused.clear()  # break the reference cycle of refusals and responses

    def _append_one(
        self, view: memoryview, start: int, end: int, correlation: int, head: SingleHead
    ) -> bool:
        """Append the only batch of a request. Return False if `_steps` must handle the request.

        The reason is that the batch is refused, or that later turns of the event loop must finish its check. `_steps`
        then checks a refused batch again: passing the verdict on would cost every accepted batch a richer result.
        """
        partition, acks = head.partition, head.acks
        required = self._append(partition, view, start, end, acks, head.guard)
        if required is None or required < 0:
            return False
        if not acks:
            self.purgatory.finished_produces += 1
            return True
        answers = self.answers
        if acks < 0:
            partition.produce_waits(answers)
        else:
            required = ALREADY
        deadline = self.now + head.timeout_ms
        answers.entries.append(
            (partition, required, deadline, correlation, partition.appended_base, head.pack)
        )
        if answers.considered != self.now:
            answers.measure(self.now)
        if required <= partition.high_watermark:
            self.purgatory.ready[answers] = None
        return True

    def _append(
        self, partition: Partition, view: memoryview, start: int, end: int, acks: int, guard: int
    ) -> int | None:
        """Check and append one batch. Return the result of `Purgatory.append`; None while the check is unfinished."""
        verdict = self.checks.check(
            partition.record_rules, view, start, end, self.now, self.wall_ms
        )
        field = view[start:end]
        invalid = 0
        if verdict != 0:
            if verdict is None:
                return None
            if isinstance(verdict, int):
                invalid = verdict
            else:
                field = memoryview(verdict)
        return self.purgatory.append(
            partition, field, acks, self.now, self.wall_ms, invalid=invalid, guard=guard
        )

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
            if request.head_end and self._append_first(
                view, request, version, correlation, start, end
            ):
                return None
        is_large = request is None or end - body > _LARGE_BYTES or self.parts > _PARTS_MAX
        steps = self._steps(view, chain((request,), decoding), correlation, version)
        if is_large or any(steps):
            self.large.begin(self._in_turns(steps), has_many=request is None)
            return AGAIN
        return None

    def _append_first(
        self,
        view: memoryview,
        request: ProduceRequest,
        version: int,
        correlation: int,
        start: int,
        end: int,
    ) -> bool:
        """Remember the head of a request for one partition, then do what `_append_one` does."""
        head = self._remember(bytes(view[start + CLIENT_ID : request.head_end]), request, version)
        part = request.topics[0][1][0]
        return (
            head is not None
            and part.start >= 0
            and part.end + head.tail == end
            and self._append_one(view, part.start, part.end, correlation, head)
        )

    def _remember(self, head: bytes, request: ProduceRequest, version: int) -> SingleHead | None:
        topic, parts = request.topics[0]
        number = parts[0].partition
        partition = self.replicas.find(topic, number)
        if (
            partition is None
            or partition.log_append_time
            or topic in _INTERNAL_TOPICS
            or not -1 <= request.acks <= 1
            or version < _ZSTD_SINCE
            or self.refused
            or not self._is_known_right(topic, request.transactional_id)
        ):
            return None
        if len(self.memo) >= _MEMO_MAX or len(self.memo) * len(head) >= _MEMO_BYTES:
            self.memo.clear()
        pack = self._pack(topic, number, version)
        guard = NOT_TRANSACTIONAL if request.transactional_id is None else NO_GUARD
        known = SingleHead(partition, request.acks, version, request.timeout_ms, pack, guard)
        self.memo[head] = known
        self.head_size = len(head)
        return known

    def _is_known_right(self, topic: bytes, transactional_id: bytes | None) -> bool:
        """Return True if requests with the same head need no further check of the client's rights."""
        if self.writes is None or self.transactions is None:
            return True
        is_known = transactional_id is None or self.transactions.knows(transactional_id)
        return is_known and self.writes.knows(topic)

    def _denial(self, topic: bytes, found: Found) -> int:
        """Return the error code for all batches of a topic if the client may not send them, else 0."""
        if found is NO_ID:
            return _NO_TRANSACTION
        if self.writes is None or self.writes.allow(topic):
            return 0
        return _NO_TOPIC

    def _pack(self, topic: bytes, number: int, version: int) -> Pack:
        key = (topic, number, version)
        pack = self.packs.get(key)
        if pack is None:
            if len(self.packs) >= _MEMO_MAX:
                self.packs.clear()
            pack = self.packs[key] = single_pack(topic, number, version, self.find_leader)
        return pack

    def _append_part(
        self,
        view: memoryview,
        topic: bytes,
        part: PartitionRecords,
        acks: int,
        version: int,
        found: Found,
        denial: int,
    ) -> PendingPartition | None:
        """Append one batch and return its result; None while the check of its records is unfinished.

        `denial`: the error code if the client may not send the batch, else 0.
        """
        number, start, end = part
        if denial:
            return PendingPartition(number, denial)
        if not -1 <= acks <= 1:
            return PendingPartition(number, _INVALID_ACKS)
        if topic in _INTERNAL_TOPICS:
            return PendingPartition(number, _INVALID_TOPIC)
        partition = self.replicas.find(topic, number)
        if self.refused and (topic, number) in self.refused:
            refusal = self.refused[topic, number]
            producer = producer_of(view[start:end])
            if refusal.applies_to(producer):
                return PendingPartition(number, refusal.error)
            if refusal.is_ended_by(producer):
                del self.refused[topic, number]
        if partition is None:
            error = self.replicas.error_for_wire(topic, number)
            return self._refuse(topic, number, error, view[start:end])
        if (
            version < _ZSTD_SINCE
            and end - start > _ATTRIBUTES_LOW
            and view[start + _ATTRIBUTES_LOW] & CODEC_MASK == ZSTD
        ):
            return PendingPartition(number, _UNSUPPORTED_COMPRESSION)
        guard = found((topic, number))
        self.checks.errors = None
        stop = end_of_batch(view, start, end)
        required = guard if guard < 0 else self._append(partition, view, start, stop, acks, guard)
        if required is None:
            return None
        if required < 0:
            _count_refusal(partition, -required, end - start)
            bad = self.checks.errors
            return self._refuse(topic, number, -required, view[start:end], bad)
        append_time = self.wall_ms if partition.log_append_time else -1
        if acks >= 0:
            required = ALREADY
        return PendingPartition(
            number, 0, partition.appended_base, append_time, partition, required
        )

    def _steps(
        self,
        view: memoryview,
        decoding: Iterator[ProduceRequest | None],
        correlation: int,
        version: int,
    ) -> Steps:
        """Decode a request, queue an entry for its response, verify its batches, then append partition by partition.

        Yield True if the next step must wait until the coordinator has answered, or the check of a batch has ended.
        Yield False after any other step.
        """
        while (request := next(decoding)) is None:
            yield False
        acks = request.acks
        topics: Topics = [(topic, []) for topic, _ in request.topics]
        encode = encoder(topics, correlation, version, self.find_leader)
        multi = MultiProduce([], encode, NEVER)
        room = LISTED_MAX
        if acks:
            self.answers.wait_many(multi)
            self.answers.measure(self.now)
        found = yield from self.guards.of(view, request, version)
        for (topic, parts), (_, answers) in zip(request.topics, topics, strict=True):
            denial = self._denial(topic, found)
            for part in parts:
                batch = view, topic, part, acks, version, found, denial
                while (answer := self._append_part(*batch)) is None:
                    yield True
                self.checks.release(part.start)
                if answer.bad_records is not None:
                    answer.bad_records.limit(room)
                    room -= len(answer.bad_records)
                answers.append(answer)
                if acks:
                    self.answers.add_part(multi, answer)
                else:
                    multi.parts.append(answer)
                if answer.error:
                    self._note_refused(topic, answer, multi)
                if not len(multi.parts) % LARGE_STEP:
                    yield False
        multi.deadline = self.now + request.timeout_ms
        self._finish(multi, acks)

    def _finish(self, multi: MultiProduce, acks: int) -> None:
        is_refused = any(part.error for part in multi.parts)
        if is_refused:
            self.memo.clear()
        if acks:
            self.purgatory.ready[self.answers] = None
            return
        self.purgatory.finished_produces += 1
        if is_refused:
            self.close()

    # ---- steps in later turns

    def _in_turns(self, steps: Steps) -> Steps:
        """Take the remaining steps of a request, each with the current time and a full budget for checks."""
        while True:
            self.now, self.wall_ms = self.clock.now(), self.clock.wall_ms()
            self.checks.walked = 0
            waits = next(steps, None)
            if waits is None:
                return
            yield waits

    def _large_done(self) -> None:
        self.is_handled = True
        self.resume()

    def _large_failed(self, reason: str) -> None:
        logger.info("closing connection from %s: %s", self.client.peer, reason)
        self.close()

    # ---- refusals

    def _note_refused(self, topic: bytes, part: PendingPartition, response: MultiProduce) -> None:
        tp = TopicPartition(topic.decode("utf-8", "replace"), part.number)
        self.replicas.refusals.note("Produce", tp, part.error)
        refusal = self.refused.get((topic, part.number))
        if refusal is not None and refusal.response is None:
            refusal.response = response

    def _refuse(
        self,
        topic: bytes,
        number: int,
        error: int,
        field: memoryview,
        bad: RecordErrors | None = None,
    ) -> PendingPartition:
        """Return the error as the batch's result. If it is retriable, also refuse later batches (`BatchRefusal`).

        `bad`: the bad records, if the check of the records has found some. The error may have another reason.
        """
        if error in RETRIABLE:
            refusal = BatchRefusal(error, producer_of(field), self.now)
            self.refused.setdefault((topic, number), refusal)
        is_reason = bad is not None and bad.code == error
        return PendingPartition(number, error, bad_records=bad if is_reason else None)

    def _forget_sent_refusals(self) -> None:
        """Mark each `BatchRefusal` whose response was sent; drop each one that affects no later batch."""
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
