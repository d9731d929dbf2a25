"""Writes the staged rows of all tasks, and the marker of their micro-batch, in one transaction.

The marker is the offset of a group with the name of the transactional id: the id of the last micro-batch that was
committed. It is in the same transaction as the rows. So the rows of a micro-batch are committed if and only if the
marker has reached the micro-batch, and a micro-batch that runs again is written only if the marker has not.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from minikafka.base.errors import ConfigError, KafkaError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark.records.checksum import Checksum
from minikafka.spark.records.encode import stamp
from minikafka.spark.sink.backlog import Batch
from minikafka.spark.sink.once.chunks import delete_chunks, delete_topic, pieces
from minikafka.spark.sink.once.frames import Frame, unpack
from minikafka.spark.sink.once.staged import Staged, transactional_id
from minikafka.spark.sink.once.transaction import Marker, Transaction, TransactionLost, as_lost
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
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import Leaders, raise_if_final
from minikafka.spark.wire.producing import Produced

logger = logging.getLogger(__name__)

_TRIES: Final = 3


class Superseded(MinikafkaError):
    """Another process writes with the same transactional id."""


@dataclass(eq=False)
class _Relayed(Batch):
    """A batch that a task has encoded. `first` and `last`: the numbers of its first and last row in the task."""

    task: int = 0
    first: int = 0
    last: int = 0


def commit_staged(options: WriteOptions, staged: Sequence[Staged]) -> None:
    """Commit the rows of all tasks of a write, unless the marker says that this was done before.

    Raises `Superseded` if another process writes with the same id, `ConfigError` for options that do not fit,
    `WriteFailed` if a leader refuses rows, `Unreachable` and `KafkaError`.
    """
    for left in reversed(range(_TRIES)):
        timer = Deadline(options.transaction_timeout_ms / 1000)
        try:
            with client(options, "commit") as leaders:
                work = _Commit(options, leaders, staged)
                work.run()
                with suppress(MinikafkaError, OSError):  # the rows are committed
                    work.clean()
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


def _last_error(error: TransactionLost, options: WriteOptions, *, has_time: bool) -> MinikafkaError:
    if has_time:
        return error
    return ConfigError(
        f"the rows were not written within the {options.transaction_timeout_ms} ms of option {TRANSACTION_TIMEOUT}:"
        " set a larger value, or limit the micro-batches with maxOffsetsPerTrigger"
    )


class _Commit:
    """One try to commit a write."""

    def __init__(self, options: WriteOptions, leaders: Leaders, staged: Sequence[Staged]) -> None:
        self._options = options
        self._leaders = leaders
        self._staged = sorted(staged, key=lambda one: one.write.task)
        self._write = staged[0].write
        self._batch = self._write.batch or 0

    def run(self) -> None:
        """Write the rows and the marker, unless the marker has reached the micro-batch."""
        options = self._options
        patience_s = options.delivery_timeout_ms / 1000
        name = transactional_id(options, self._write)
        open_ = Transaction(self._leaders, name, options.transaction_timeout_ms, patience_s)
        try:
            if not self._is_done(open_.marker()):
                self._write_rows(open_)
                open_.mark(
                    Marker(self._batch, self._write.query, self._write.run, self._write.name)
                )
                open_.commit()
        except TransactionLost:
            raise
        except BaseException:
            open_.abandon()
            raise

    def _is_done(self, marker: Marker | None) -> bool:
        """True if the micro-batch was committed before. Raises `ConfigError` if this cannot be known."""
        write = self._write
        if marker is None:
            if write.query is not None and self._batch != self._options.first_batch:
                raise ConfigError(
                    f"the brokers have no marker of query {write.query}: it has expired, or the query ran without"
                    f" {ONCE}; to write micro-batch {self._batch}, also if it was written before, set option"
                    f" {ONCE_FROM} to {self._batch}"
                )
            return False
        if (marker.batch, marker.run) == (self._batch, write.run) and marker.write != write.name:
            raise ConfigError(
                f"micro-batch {self._batch} was already written under the transactional id"
                f" {transactional_id(self._options, write)}: give each write of a foreachBatch its own {ID_PREFIX}"
            )
        return marker.batch >= self._batch

    def _write_rows(self, open_: Transaction) -> None:
        partitions = sorted({tp for one in self._staged for tp in one.partitions})
        if not partitions:
            return
        self._leaders.forget()
        self._leaders.try_to_refresh(partitions)
        open_.add(partitions)
        crc = needed_checksum()
        sender = Sender(
            self._leaders,
            self._options,
            refused=_raise_if_refused,
            halves=lambda _: None,
            transactional_id=transactional_id(self._options, self._write),
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

    def _data_of(self, one: Staged, crc: Checksum) -> Iterable[bytes]:
        return [one.data] if one.chunks is None else pieces(self._options, one.chunks, crc)

    def clean(self) -> None:
        """Delete the staged rows of all tasks. They stay if brokers do not answer."""
        done = [one.chunks for one in self._staged if one.chunks]
        if not done:
            return
        if self._write.query is None:
            delete_topic(self._leaders, done[0].tp.topic)
        else:
            delete_chunks(self._leaders, done, self._options.request_timeout_ms)


def _stamped(
    frame: Frame,
    task: int,
    open_: Transaction,
    sequences: dict[TopicPartition, int],
    crc: Checksum,
) -> Batch:
    """Return the batch of a frame with the producer and the next sequence number of its partition."""
    sequence = sequences[frame.tp]
    count = stamp(frame.data, open_.producer, sequence, crc)
    sequences[frame.tp] = (sequence + count) % SEQUENCES
    return _Relayed(sequence, frame.size, frame.data, task=task, first=frame.first, last=frame.last)


def _raise_if_refused(tp: TopicPartition, batch: Batch, answer: Produced) -> None:
    """Raise an error that names the refused rows, if a retry cannot fix the error in `answer`."""
    assert isinstance(batch, _Relayed)
    try:
        with as_lost():
            raise_if_final(answer.error, str(tp))
    except KafkaError as error:
        reasons = [reason for _, reason in answer.refused] or [answer.message]
        rows = f"row {batch.first}"
        if batch.last > batch.first:
            rows = f"rows {batch.first} to {batch.last}"
        text = f"{rows} of task {batch.task} were refused by {tp}: {error}"
        raise WriteFailed("; ".join(filter(None, [text, *reasons]))) from error
