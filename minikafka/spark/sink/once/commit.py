"""Writes the staged rows of all tasks, and the marker of their micro-batch, in one transaction.

The marker is the offset of a group with the name of the transactional id: the id of the last micro-batch that was
committed, and what it contained. It is in the same transaction as the rows. So the rows of a micro-batch are committed
if and only if the marker has reached the micro-batch. A micro-batch that runs again is written only if the marker has
not reached it. A micro-batch of the same number with another content is refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from minikafka.base.errors import ConfigError, KafkaError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark.micro_batches import read_plan
from minikafka.spark.option_map import CHECKPOINT
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.records.encode import stamp
from minikafka.spark.sink.backlog import Batch
from minikafka.spark.sink.once.chunks import delete_chunks, delete_topic, pieces
from minikafka.spark.sink.once.staged import Frame, StagedRows, content_of, transactional_id, unpack
from minikafka.spark.sink.once.transaction import (
    CommittedBatch,
    SinkTransaction,
    TransactionLost,
    as_lost,
    read_marker,
)
from minikafka.spark.sink.options import (
    ID_PREFIX,
    ONCE,
    ONCE_FROM,
    TRANSACTION_TIMEOUT,
    WriteOptions,
)
from minikafka.spark.sink.producer import SEQUENCES, WriteFailed
from minikafka.spark.sink.routing import client, needed_checksum
from minikafka.spark.sink.sending import Sender
from minikafka.spark.wire.coordinators import Coordinator
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import LeaderConnections, raise_if_final
from minikafka.spark.wire.producing import PRODUCE, ProducedPartition
from minikafka.spark.wire.transactions import OF_GROUPS

logger = logging.getLogger(__name__)

_TRIES: Final = 3


_REMEMBERED_MS: Final = 7 * 24 * 60 * 60 * 1000
"""The time for which brokers remember markers and transactional ids, with Kafka's defaults."""
_NOTHING: Final = "nothing"
"""The content in a marker that stands for no micro-batch. It is committed before the first rows of a new id."""


class Superseded(MinikafkaError):
    """Another process writes with the same transactional id."""


class OtherContent(MinikafkaError):
    """A micro-batch has the number of a micro-batch that was committed, but not its content."""


@dataclass(eq=False)
class _Relayed(Batch):
    """A batch that a task has encoded. `first` and `last`: the numbers of its first and last row in the task."""

    task: int = 0
    first: int = 0
    last: int = 0


def commit_staged(options: WriteOptions, staged: Sequence[StagedRows]) -> None:
    """Commit the rows of all tasks of a write, unless the marker says that this was done before.

    Raises `Superseded` if another process writes with the same id, `ConfigError` for options that do not fit,
    `WriteFailed` if a leader refuses rows, `Unreachable` and `KafkaError`.
    """
    work = _Commit(options, staged)
    for left in reversed(range(_TRIES)):
        timer = Deadline(options.transaction_timeout_ms / 1000)
        try:
            with client(options, "commit") as leaders:
                work.run(leaders)
                with suppress(MinikafkaError, OSError):  # the rows are committed
                    work.clean(leaders)
            return
        except TransactionLost as error:
            has_time = timer.left() > 0
            if error.is_fenced and has_time:
                name = transactional_id(options, staged[0].write)
                raise Superseded(
                    f"another process writes with the transactional id {name}: end it,"
                    f" or give each query a checkpoint of its own ({error})"
                ) from error
            if not left:
                raise _last_error(error, options, has_time=has_time) from error
            logger.warning("The transaction is repeated: %s", error)


def rows_of_run(options: WriteOptions, query: str, run: str) -> int:
    """Return the number of rows that a run of a query has committed. Raises the errors of `commit_staged`."""
    name = f"{options.id_prefix}-{query}"
    with client(options, "rows") as leaders:
        group = Coordinator(leaders, OF_GROUPS, name, options.delivery_timeout_ms / 1000)
        marker = read_marker(group, name)
    return marker.rows if marker is not None and marker.run == run else 0


def _last_error(error: TransactionLost, options: WriteOptions, *, has_time: bool) -> MinikafkaError:
    if has_time:
        return error
    return ConfigError(
        f"the rows were not written within the {options.transaction_timeout_ms} ms of option {TRANSACTION_TIMEOUT}:"
        " set a larger value, or limit the micro-batches with maxOffsetsPerTrigger"
    )


class _Commit:
    """The commit of a write."""

    def __init__(self, options: WriteOptions, staged: Sequence[StagedRows]) -> None:
        self._options = options
        self._staged = sorted(staged, key=lambda one: one.write.task)
        self._write = staged[0].write
        self._batch = self._write.batch or 0
        self._content = content_of(options, staged)
        self._name = transactional_id(options, self._write)
        self._is_new = False
        """True if the coordinator did not know the transactional id at the first try."""

    def run(self, leaders: LeaderConnections) -> None:
        """Try to write the rows and the marker, unless the marker has reached the micro-batch."""
        open_ = self._begin(leaders)
        try:
            marker = open_.marker()
            if marker is None:
                self._check_unmarked()
            if marker is None and self._batch:
                open_.mark(CommittedBatch(0, self._write.query, None, self._write.name, _NOTHING))
                open_.commit()
                open_ = self._begin(leaders)
            elif marker is not None and self._is_done(marker):
                self._take_over(open_, marker)
                return
            self._write_rows(leaders, open_)
            open_.mark(self._marker(marker))
            open_.commit()
        except TransactionLost:
            raise
        except BaseException:
            open_.abandon()
            raise

    def _begin(self, leaders: LeaderConnections) -> SinkTransaction:
        options = self._options
        patience_s = options.delivery_timeout_ms / 1000
        open_ = SinkTransaction(leaders, self._name, options.transaction_timeout_ms, patience_s)
        self._is_new = self._is_new or open_.is_first
        return open_

    def _marker(self, before: CommittedBatch | None) -> CommittedBatch:
        """Return the marker of this write, after the marker `before`."""
        write = self._write
        is_of_run = before is not None and write.run is not None and before.run == write.run
        rows = sum(one.rows for one in self._staged) + (before.rows if before and is_of_run else 0)
        return CommittedBatch(
            self._batch,
            write.query,
            write.run,
            write.name,
            self._content,
            rows,
            self._options.topic,
        )

    def _take_over(self, open_: SinkTransaction, marker: CommittedBatch) -> None:
        """Mark a micro-batch of an earlier run as one of this write.

        Without this, a second write with the same id would be taken for a repetition of the first one.
        """
        write = self._write
        if marker.run != write.run:
            open_.mark(replace(marker, run=write.run, write=write.name, rows=0))
            open_.commit()

    def _is_done(self, marker: CommittedBatch) -> bool:
        """True if the micro-batch was committed before. Raises `OtherContent` and `ConfigError`."""
        write = self._write
        if marker.content == _NOTHING or marker.batch < self._batch:
            return False
        if (marker.batch, marker.run) == (self._batch, write.run) and marker.write != write.name:
            raise ConfigError(
                f"micro-batch {self._batch} was already written under the transactional id"
                f" {self._name}: give each write of a foreachBatch its own {ID_PREFIX}"
            )
        if marker.batch == self._batch and marker.content in (None, self._content):
            self._check_topic(marker.topic)
            return True
        raise OtherContent(
            f"the topic has the rows up to micro-batch {marker.batch}, and {self._difference(marker)}: restore the"
            f" newest checkpoint, or name a new checkpoint and a new topic; another {ID_PREFIX} writes the rows again"
        )

    def _check_topic(self, former: str | None) -> None:
        """Raise `ConfigError` if the micro-batch was written to another topic."""
        topic = self._options.topic
        if former and topic and former != topic:
            raise ConfigError(
                f"an earlier run has written micro-batch {self._batch} to topic {former}, not to topic {topic}: give"
                f" the write to {topic} another {ID_PREFIX}, or run the micro-batch once more with topic {former}"
            )

    def _difference(self, marker: CommittedBatch) -> str:
        """Return why the micro-batch is not the one that was committed."""
        batch = f"micro-batch {self._batch}"
        if marker.batch > self._batch:
            return f"{batch} runs again from an older copy of the checkpoint"
        kinds = {(one or "").partition(" ")[0] for one in (marker.content, self._content)}
        if kinds == {"plan"}:
            return f"{batch} now has other offsets, from an older copy of the checkpoint"
        if kinds == {"rows"}:
            return f"{batch} now has other rows (without option {CHECKPOINT}, only its rows are compared)"
        return f"{batch} cannot be compared, since only one of its runs had the option {CHECKPOINT}"

    def _check_unmarked(self) -> None:
        """Raise `ConfigError` if there is no marker, but the micro-batch may have been written."""
        first, batch = self._options.first_batch, self._batch
        if self._write.query is None or batch == first:
            return
        plan = read_plan(self._options.checkpoint, batch)
        age_ms = time.time_ns() // 1_000_000 - plan.time_ms if plan and plan.time_ms else 0
        if age_ms >= _REMEMBERED_MS:
            days = age_ms // (24 * 60 * 60 * 1000)
            reason = f"micro-batch {batch} was planned {days} days ago, and a marker expires after 7 days"
        elif batch and not self._is_new:
            reason = "its marker has expired or was deleted, or its first write was interrupted"
        elif batch and first is not None and batch < first:
            reason = f"an earlier run has begun micro-batch {batch}, and wrote without {ONCE} or wrote nothing"
        else:
            return
        raise ConfigError(
            f"the brokers have no marker of query {self._write.query}: {reason}; to write micro-batch {batch}, also if"
            f" it was written before, set option {ONCE_FROM} to {batch}"
        )

    def _write_rows(self, leaders: LeaderConnections, open_: SinkTransaction) -> None:
        partitions = sorted({tp for one in self._staged for tp in one.partitions})
        if not partitions:
            return
        leaders.forget()
        leaders.try_to_refresh(partitions)
        open_.add(partitions)
        crc = needed_checksum()
        sender = Sender(
            leaders,
            self._options,
            refused=_raise_if_refused,
            halves=lambda _: None,
            transactional_id=self._name,
        )
        sequences = dict.fromkeys(partitions, 0)
        with as_lost():
            for one in self._staged:
                for frame in unpack(self._data_of(one, crc)):
                    sender.make_room()
                    batch = _stamped(frame, one.write.task, open_, sequences, crc)
                    sender.add(frame.tp, batch)
                    sender.exchange_if_full()
            sender.flush()

    def _data_of(self, one: StagedRows, crc: Checksum) -> Iterable[bytes]:
        return [one.data] if one.chunks is None else pieces(self._options, one.chunks, crc)

    def clean(self, leaders: LeaderConnections) -> None:
        """Delete the staged rows of all tasks. They stay if brokers do not answer."""
        done = [one.chunks for one in self._staged if one.chunks]
        if not done:
            return
        if self._write.query is None:
            delete_topic(leaders, done[0].tp.topic)
        else:
            delete_chunks(leaders, done, self._options.request_timeout_ms)


def _stamped(
    frame: Frame,
    task: int,
    open_: SinkTransaction,
    sequences: dict[TopicPartition, int],
    crc: Checksum,
) -> Batch:
    """Return the batch of a frame with the producer and the next sequence number of its partition."""
    sequence = sequences[frame.tp]
    count = stamp(frame.data, open_.producer, sequence, crc)
    sequences[frame.tp] = (sequence + count) % SEQUENCES
    return _Relayed(sequence, frame.size, frame.data, task=task, first=frame.first, last=frame.last)


def _raise_if_refused(tp: TopicPartition, batch: Batch, answer: ProducedPartition) -> None:
    """Raise an error that names the refused rows, if a retry cannot fix the error in `answer`."""
    assert isinstance(batch, _Relayed)
    try:
        with as_lost():
            raise_if_final(answer.error, str(tp), PRODUCE, tp.topic)
    except KafkaError as error:
        reasons = [reason for _, reason in answer.refused] or [answer.message]
        rows = f"row {batch.first}"
        if batch.last > batch.first:
            rows = f"rows {batch.first} to {batch.last}"
        text = f"{rows} of task {batch.task} were refused by {tp}: {error}"
        raise WriteFailed("; ".join(filter(None, [text, *reasons]))) from error
