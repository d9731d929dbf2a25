"""Helpers that clean a log without a broker, and logs with every kind of record and batch that a cleaner handles."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any, Final

from support.storage.logs import append, end_marker, open_log

from minikafka.base.ports import Storage
from minikafka.kafka.records.batch import Record, build, records, stamp_append_time
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BATCH_LENGTH,
    CRC,
    HEADER,
    HEADER_BYTES,
    OVERHEAD,
    TRANSACTIONAL,
    Header,
)
from minikafka.storage.log.cleaner.cleaning import clean
from minikafka.storage.log.cleaner.dirt import dirt_of, task_of
from minikafka.storage.log.cleaner.task import CleanedGroup, CleaningOutcome, CleaningTask
from minikafka.storage.log.log import Log

BIG_MAP: Final = 128 << 20


def task(log: Log, wall_ms: int, uncleanable: int | None = None, **other: Any) -> CleaningTask:
    """Return a task that cleans a log below the offset `uncleanable` (None: to its end), ignoring the high watermark.

    `other`: fields of the task to replace.
    """
    end = log.log_end_offset
    dirt = dirt_of(log, end if uncleanable is None else uncleanable, wall_ms)
    made = task_of(
        log,
        dirt,
        wall_ms,
        dedupe_bytes=BIG_MAP,
        load_factor=0.9,
        io_bytes=64 << 10,
        bytes_per_second=1e18,
    )
    return replace(made, **other)


def carry_out(storage: Storage, given: CleaningTask) -> tuple[list[CleanedGroup], CleaningOutcome]:
    """Carry out a cleaning task; return the groups of cleaned segments, and the outcome."""
    steps = clean(storage, given)
    groups: list[CleanedGroup] = []
    while True:
        try:
            step = next(steps)
        except StopIteration as end:
            return groups, end.value
        if isinstance(step, CleanedGroup):
            groups.append(step)


def varied_log(
    storage: Storage,
    directory: str,
    rng: Random,
    now_ms: int,
    *,
    steps: int = 300,
    open_from: int = -1,
    **settings: Any,
) -> Log:
    """Return a log of many segments with random records.

    The log has updates and delete markers of few keys, every codec, large and small batches, idempotent producers,
    committed and aborted transactions, and batches with LogAppendTime.
    `steps`: the number of steps in which the log is written. `open_from`: the step at which a transaction begins that
    never ends; -1 for no such transaction.
    """
    log = open_log(storage, directory=directory, segment_bytes=6_000, **settings)
    _Writer(log, rng, now_ms).write(steps, open_from)
    return log


class _Writer:
    def __init__(self, log: Log, rng: Random, now_ms: int) -> None:
        self.log, self.rng, self.time = log, rng, now_ms - 10_000_000
        self.sequences: dict[int, int] = {}
        self.open: dict[int, bool] = {}

    def write(self, steps: int, open_from: int) -> None:
        for step in range(steps):
            if step == open_from:
                self._append(producer_id=60, attributes=TRANSACTIONAL)
            self.time += self.rng.randrange(20)
            kind = self.rng.random()
            if kind < 0.15:
                self._transactional(self.rng.choice((50, 51, 52)))
            elif kind < 0.4:
                self._append(producer_id=self.rng.choice((40, 41)))
            else:
                self._append()
            self.log.flush()
        for producer in tuple(self.open):
            self._end(producer)

    def _transactional(self, producer: int) -> None:
        if self.open.get(producer) and self.rng.random() < 0.4:
            self._end(producer)
        else:
            self.open[producer] = True
            self._append(producer_id=producer, attributes=TRANSACTIONAL)

    def _end(self, producer: int) -> None:
        self.open.pop(producer)
        marker = end_marker(commit=self.rng.random() < 0.5, producer=producer, timestamp=self.time)
        append(self.log, marker)
        self.log.flush()

    def _append(self, *, producer_id: int = -1, attributes: int = 0) -> None:
        count = self.rng.choice((1, 1, 2, 5, 40))
        made = [self._record() for _ in range(count)]
        sequence = -1
        if producer_id >= 0:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + count
        data = bytearray(
            build(
                made,
                codec=self.rng.choice((0, 0, 0, 0, 1, 2, 3, 4)),
                attributes=attributes,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=sequence,
            )
        )
        if self.rng.random() < 0.1:
            stamp_append_time(memoryview(data), self.time)
        append(self.log, data, epoch=self.log.log_end_offset // 500)

    def _record(self) -> Record:
        self.time += self.rng.randrange(3)
        key = self.rng.choice((b"%d", b"key-%020d", b"long-%090d")) % self.rng.randrange(60)
        value = None if self.rng.random() < 0.2 else self.rng.randbytes(self.rng.randrange(40))
        headers = (("h", b"1"),) if self.rng.random() < 0.1 else ()
        return Record(
            timestamp=self.time - self.rng.randrange(5), key=key, value=value, headers=headers
        )


def batches_of(data: bytes) -> Iterable[tuple[Header, bytes]]:
    """Yield (header, bytes) of each batch in the data."""
    at = 0
    while len(data) - at >= HEADER_BYTES:
        header = HEADER.unpack_from(data, at)
        stop = at + OVERHEAD + header[BATCH_LENGTH]
        yield header, data[at:stop]
        at = stop


def described(data: bytes) -> list[tuple[Any, ...]]:
    """Return (header fields, records) of each batch. Fields that depend on the compression library are set to 0."""
    found = []
    for header, batch in batches_of(data):
        fields = list(header)
        if header[ATTRIBUTES] & 7:
            fields[BATCH_LENGTH] = fields[CRC] = 0
        found.append((tuple(fields), list(records(batch, control=True))))
    return found


def latest(found: Iterable[Record]) -> dict[bytes, bytes]:
    """Return the latest value of every key whose latest record is not a delete marker."""
    values: dict[bytes, bytes] = {}
    for record in found:
        assert record.key is not None
        if record.value is None:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
    return values


def segment_bytes(storage: Storage, directory: str) -> dict[str, bytes]:
    """Return the content of every segment file of a log, by file name."""
    return {
        name: storage.read(f"{directory}/{name}")
        for name in storage.names(directory)
        if name.endswith(".log")
    }
