"""The markers that end transactions: coordinators send them to leaders, and leaders append them.

Invariants of the coordinator's side (`MarkerSender`): after `send`, each partition is reported as written once, or the
transaction is reported as fenced, or its markers are dropped. Nothing is reported after `drop`. The answer of the
partition's leader, or the metadata, decide:

    the marker is committed                     the partition is reported as written
    TRANSACTION_COORDINATOR_FENCED,
    INVALID_PRODUCER_EPOCH                      the transaction is reported as fenced: another coordinator has ended it
    any other error, no answer, no leader       the marker is sent again after a wait, to the leader of that time
    the partition does not exist                the partition is reported as written, as in Kafka

Only metadata that are newer than the command to send can show that a partition does not exist (S101).

Invariants of the leader's side (`MarkerAppends`): a marker gets the error 0 only if the high watermark has passed it.
While a marker is in the log but not committed, the same marker of the same coordinator is not appended again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from minikafka.base.errors import ErrorCode, KafkaError, code_name
from minikafka.base.model import BrokerId, TopicPartition
from minikafka.base.names import TRANSACTION_TOPIC
from minikafka.base.ports import Clock, Tasks
from minikafka.broker.capabilities import MetadataSource
from minikafka.broker.coordinators.peer_calls import OtherBrokers, PeerCalls
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.replicas.manager import ReplicaManager
from minikafka.broker.rpc.coordinator_calls import (
    WRITE_MARKERS,
    Errors,
    MarkerRow,
    decode_errors,
    decode_markers,
    encode_errors,
    encode_markers,
)
from minikafka.broker.rpc.fields import Body
from minikafka.broker.step_gate import StepGate
from minikafka.broker.turns import Pauses
from minikafka.deciders.transactions.commands import DropMarkers, SendMarkers
from minikafka.deciders.transactions.events import MarkersFenced, MarkersWritten
from minikafka.deciders.transactions.steps import COMPLETE, MARKERS, NEXT_MARKERS, TRANSACTION
from minikafka.kafka.records.batch import build_marker

logger = logging.getLogger(__name__)

CALL_WAIT_MS: Final = 2_000
"""Time after which the call of a coordinator is answered with REQUEST_TIMED_OUT for markers that are not committed.
The coordinator then asks again. The answers for other partitions need not wait longer."""
AT_ONCE: Final = 64
"""Number of markers that are appended at once, in about 2 ms. Then other requests are served."""
ANY_EPOCH: Final = -1
"""The leader epoch in a request that names none."""
CALL_TIMEOUT_MS: Final = 2 * CALL_WAIT_MS
RETRY_MS: Final = 100
RETRY_MAX_MS: Final = 400
"""The wait before markers are sent again. It begins with `RETRY_MS` and doubles up to `RETRY_MAX_MS`. Metadata that are
read after the first wait were not read before `send`: the source takes no metadata for new that are 100 ms old."""
_UNKNOWN: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
_TIMED_OUT: Final = int(ErrorCode.REQUEST_TIMED_OUT)
_NO_ANSWER: Final = int(ErrorCode.NETWORK_EXCEPTION)
_FENCED: Final = frozenset(
    map(int, (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))
)
"""Errors after which, as in Kafka, no marker of the transaction is sent any more: another coordinator has ended it."""
_USUAL: Final = frozenset(
    map(
        int,
        (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.NETWORK_EXCEPTION,
        ),
    )
)
"""Errors after which Kafka sends a marker again. Any other error has the same effect, and is logged."""


# ---- the leader's side


class _Marker(NamedTuple):
    """A marker in one partition."""

    tp: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    committed: bool


class MarkerAppends:
    """The markers that this broker appends as leader, for its own coordinator and for other brokers'."""

    def __init__(self, replicas: ReplicaManager, clock: Clock, pauses: Pauses) -> None:
        self._replicas = replicas
        self._clock = clock
        self._pauses = pauses
        self._pending: dict[_Marker, asyncio.Future[int]] = {}
        """The markers in the log that are not committed yet."""

    def append(self, row: MarkerRow, written: Callable[[TopicPartition, int], None]) -> None:
        """Append a marker to each of at most `AT_ONCE` partitions. Call `written(tp, error)` once for each, later."""
        for tp, leader_epoch in row.partitions:
            done = self._append(_Marker(tp, *row[:4]), leader_epoch)
            done.add_done_callback(partial(_report, tp, written))

    async def serve(self, body: Body) -> Body:
        """Answer the call `write_markers` of another broker's coordinator. Raises KafkaError."""
        return encode_errors(await self.write(decode_markers(body), CALL_WAIT_MS))

    async def write(self, rows: Sequence[MarkerRow], wait_ms: int) -> Errors:
        """Append markers to partitions. Return the errors when all are committed, at the latest after `wait_ms`."""
        placed = ((number, *one) for number, row in enumerate(rows) for one in row.partitions)
        appends: list[list[asyncio.Future[int]]] = [[] for _ in rows]
        async for number, tp, epoch in self._pauses.each(placed, AT_ONCE):
            appends[number].append(self._append(_Marker(tp, *rows[number][:4]), epoch))
        waiting = {done for row in appends for done in row if not done.done()}
        if waiting:
            await asyncio.wait(waiting, timeout=wait_ms / 1_000)
        return [[_error_of(done) for done in row] for row in appends]

    def _append(self, marker: _Marker, leader_epoch: int) -> asyncio.Future[int]:
        partition = self._replicas.partition(marker.tp)
        if partition is None:
            return _failed(_UNKNOWN)
        if leader_epoch not in (ANY_EPOCH, partition.leader_epoch):
            # A marker that was on its way while this broker lost and won the leadership would end the producer's next
            # transaction, which may have the same epoch (S100).
            return _failed(_NOT_LEADER)
        pending = self._pending.get(marker)
        if pending is None:
            pending = self._pending[marker] = self._replicas.appends.append(
                marker.tp, self._batch(marker)
            )
            pending.add_done_callback(partial(self._forget, marker))
        return pending

    def _batch(self, marker: _Marker) -> bytes:
        return build_marker(
            marker.producer_id,
            marker.producer_epoch,
            committed=marker.committed,
            coordinator_epoch=marker.coordinator_epoch,
            timestamp=self._clock.wall_ms(),
        )

    def _forget(self, marker: _Marker, done: asyncio.Future[int]) -> None:
        # Nobody may wait any longer, and asyncio reports exceptions that nobody has read.
        _error_of(done)
        if self._pending.get(marker) is done:
            del self._pending[marker]


def _failed(error: int) -> asyncio.Future[int]:
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    done.set_exception(KafkaError(ErrorCode(error), "append of a marker"))
    return done


def _report(
    tp: TopicPartition, written: Callable[[TopicPartition, int], None], done: asyncio.Future[int]
) -> None:
    written(tp, _error_of(done))


def _error_of(done: asyncio.Future[int]) -> int:
    """Return the error code of an append, REQUEST_TIMED_OUT if it is not committed yet."""
    if not done.done():
        return _TIMED_OUT
    if done.cancelled():
        return _NOT_LEADER
    failure = done.exception()
    if failure is None:
        return 0
    if isinstance(failure, KafkaError):
        return int(failure.code)
    raise failure


# ---- the coordinator's side


class _Sending:
    """The markers of one transaction. `left`: partitions that do not have the marker yet.

    `later`: partitions for which a task waits to try again. `since`: time of the first attempt (monotonic ms).
    """

    __slots__ = ("ended", "home", "is_over", "later", "left", "progress", "since")

    def __init__(self, command: SendMarkers, now: int) -> None:
        self.home = command.partition
        self.ended = command.ended
        self.left = set(command.partitions)
        self.later: set[TopicPartition] = set()
        self.since = now
        self.is_over = False
        self.progress = asyncio.Event()
        """Is set when a partition has the marker, and when no more markers are to be sent."""

    def end(self) -> None:
        """Send no more markers, and report nothing."""
        self.is_over = True
        self.progress.set()


class _Item(NamedTuple):
    """The partitions of one transaction that get the marker from one leader."""

    sending: _Sending
    row: MarkerRow


class MarkerSender:
    """The markers that this broker sends as transaction coordinator. `listener`: name of the control listener.

    The coordinator's host sets `report` before the first `send`. `source`: newer metadata, in a mode in which
    `metadata` may be old.
    """

    report: Callable[[MarkersWritten | MarkersFenced], None]

    def __init__(
        self,
        broker_id: BrokerId,
        appends: MarkerAppends,
        metadata: MetadataCache,
        source: MetadataSource | None,
        others: OtherBrokers,
        gate: StepGate,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._broker_id = broker_id
        self._appends = appends
        self._metadata = metadata
        self._source = source
        self._others = others
        self._gate = gate
        self._clock = clock
        self._tasks = tasks
        self._calls: PeerCalls[_Item] = PeerCalls(tasks, self._call, "markers-to")
        self._sendings: dict[int, dict[str, _Sending]] = {}
        """Partition of `__transaction_state` -> transactional id -> markers that are not all written."""

    def send(self, command: SendMarkers) -> None:
        """Send markers until they are written, or until `drop` is called for the coordinator's partition."""
        sending = _Sending(command, self._clock.now())
        sendings = self._sendings.setdefault(sending.home, {})
        former = sendings.get(sending.ended.transactional_id)
        if former is not None:
            former.end()
        sendings[sending.ended.transactional_id] = sending
        if self._gate.is_open:
            self._route(sending, command.partitions)
        else:
            steps = self._send_in_steps(sending, command.partitions)
            self._tasks.spawn(steps, "markers-in-steps")

    def drop(self, command: DropMarkers) -> None:
        """Stop sending the markers of a partition of `__transaction_state`."""
        for sending in self._sendings.pop(command.partition, {}).values():
            sending.end()

    async def _send_in_steps(self, sending: _Sending, partitions: Sequence[TopicPartition]) -> None:
        """Send the markers, and wait at each step that is held. The first partition gets its marker first."""
        await self._gate.reached(TRANSACTION, MARKERS)
        self._route(sending, partitions[:1])
        await sending.progress.wait()
        if len(partitions) > 1:
            await self._gate.reached(TRANSACTION, NEXT_MARKERS)
            self._route(sending, partitions[1:])

    # ---- leaders

    def _route(
        self, sending: _Sending, partitions: Iterable[TopicPartition], *, is_fresh: bool = False
    ) -> None:
        """Send the marker to the leader of each partition; try again later without a leader.

        `is_fresh`: the metadata of these partitions were read since the marker is to be sent.
        """
        if sending.is_over:
            return
        led: dict[BrokerId, list[tuple[TopicPartition, int]]] = {}
        deleted: list[TopicPartition] = []
        for tp in partitions:
            state = self._metadata.topics.get(tp.topic, {}).get(tp.partition)
            if state is not None and state.leader in self._metadata.brokers:
                led.setdefault(state.leader, []).append((tp, state.leader_epoch))
            elif state is None and (is_fresh or self._source is None) and self._has_metadata():
                # Only metadata that are newer than the decision tell that a partition was deleted (S101).
                deleted.append(tp)
            else:
                self._try_later(sending, tp)
        for leader, found in led.items():
            row = MarkerRow(*sending.ended[1:5], found)
            if leader == self._broker_id and len(found) <= AT_ONCE:
                self._appends.append(row, partial(self._appended, sending))
            else:
                self._calls.add(leader, _Item(sending, row))
        if deleted:
            self._written(sending, deleted)

    def _has_metadata(self) -> bool:
        """Return False before this broker has the metadata of its cluster: no partition counts as deleted then."""
        return TRANSACTION_TOPIC in self._metadata.topics

    async def _call(self, leader: BrokerId, items: Sequence[_Item]) -> None:
        """Send markers to one leader, and process the results."""
        items = [item for item in items if not item.sending.is_over]
        if not items:
            return
        rows = [item.row for item in items]
        if leader == self._broker_id:
            errors = await self._appends.write(rows, CALL_WAIT_MS)
        else:
            errors = await self._ask(leader, rows)
        for (sending, row), results in zip(items, errors, strict=True):
            tps = [tp for tp, _ in row.partitions]
            self._answered(sending, dict(zip(tps, results, strict=True)))

    async def _ask(self, leader: BrokerId, rows: Sequence[MarkerRow]) -> Errors:
        lengths = [len(row.partitions) for row in rows]
        try:
            answer = await self._others.call(
                leader, WRITE_MARKERS, encode_markers(rows), CALL_TIMEOUT_MS
            )
            return decode_errors(answer, lengths)
        except (OSError, KafkaError) as error:
            logger.info("no answer to markers from broker %d: %s", leader, error)
            return [[_NO_ANSWER] * length for length in lengths]

    # ---- results

    def _appended(self, sending: _Sending, tp: TopicPartition, error: int) -> None:
        self._answered(sending, {tp: error})

    def _answered(self, sending: _Sending, errors: Mapping[TopicPartition, int]) -> None:
        if sending.is_over:
            return
        if not _FENCED.isdisjoint(errors.values()):
            self._forget(sending)
            self.report(MarkersFenced(sending.ended))
            return
        for tp, error in errors.items():
            if error:
                if error not in _USUAL:
                    logger.warning("marker of %s for %s: %s", sending.ended, tp, code_name(error))
                self._try_later(sending, tp)
        written = [tp for tp, error in errors.items() if not error]
        if written:
            self._written(sending, written)

    def _written(self, sending: _Sending, partitions: Sequence[TopicPartition]) -> None:
        assert sending.left.issuperset(partitions), "a partition is reported as written once"
        sending.left.difference_update(partitions)
        sending.progress.set()
        if sending.left or self._gate.is_open:
            self._report(sending, partitions)
        else:
            self._tasks.spawn(self._report_in_steps(sending, partitions), "markers-in-steps")

    async def _report_in_steps(
        self, sending: _Sending, partitions: Sequence[TopicPartition]
    ) -> None:
        await self._gate.reached(TRANSACTION, COMPLETE)
        if not sending.is_over:
            self._report(sending, partitions)

    def _report(self, sending: _Sending, partitions: Sequence[TopicPartition]) -> None:
        if not sending.left:
            self._forget(sending)
        self.report(MarkersWritten(sending.ended, partitions))

    def _forget(self, sending: _Sending) -> None:
        sending.end()
        del self._sendings[sending.home][sending.ended.transactional_id]

    # ---- further attempts

    def _try_later(self, sending: _Sending, tp: TopicPartition) -> None:
        if not sending.later:
            self._tasks.spawn(self._try_again(sending), "markers-again")
        sending.later.add(tp)

    async def _try_again(self, sending: _Sending) -> None:
        """Wait, and send the marker again to the partitions that need another attempt."""
        waited = self._clock.now() - sending.since
        await self._clock.sleep(min(max(waited, RETRY_MS), RETRY_MAX_MS))
        later, sending.later = sending.later, set()
        if sending.is_over:
            return
        is_fresh = await self._read_metadata({tp.topic for tp in later})
        self._route(sending, later, is_fresh=is_fresh)

    async def _read_metadata(self, topics: set[str]) -> bool:
        """Return True if the metadata of these topics were read now, in a mode in which they may be old."""
        if self._source is None:
            return True
        read = self._source.asked(topics, is_missing=False)
        return read is None or await read
