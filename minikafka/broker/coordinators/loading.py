"""Loading of a coordinator's state: a new coordinator reads its partitions of the internal topic in the background.

One task reads all partitions that this broker has begun to lead. Invariants: no step of the task decodes
more than `_STEP_RECORDS` records, and the event loop does other work between two steps. A load ends only when
every record that an earlier leader acknowledged has been read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby, islice
from typing import Any, Final, NamedTuple

from minikafka.base.coordinators import (
    NO_TRANSACTION,
    LoadedRecord,
    LoadFinished,
    LoadPartition,
    RecordsRead,
    TransactionEnded,
)
from minikafka.base.errors import CorruptBatch, KafkaError, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock, Tasks
from minikafka.broker.coordinators.internal_topic import InternalTopic
from minikafka.broker.turns import Pauses
from minikafka.kafka.records.batch import marker_of, records
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL,
    HEADER,
    HEADER_BYTES,
    OVERHEAD,
    PRODUCER_ID,
    TRANSACTIONAL,
)
from minikafka.kafka.records.transactions import Marker
from minikafka.storage.replication.reader import PartitionReader

logger = logging.getLogger(__name__)

_STEP_RECORDS: Final = 200
"""Records that are decoded in one step, which takes about two milliseconds."""
_WAIT_MS: Final = 10
"""Pause (ms) while all loads wait for the followers of their partitions to fetch."""


class Load:
    """The load of one partition in one leader epoch."""

    def __init__(self, tp: TopicPartition, epoch: int, begun: int) -> None:
        self.tp = tp
        self.partition = tp.partition
        self.epoch = epoch
        self.begun = begun
        """Start of the load, in monotonic ms."""
        self.reader: PartitionReader | None = None
        self.count = 0


class SkippedBatch(NamedTuple):
    """A batch that a coordinator could not read when it loaded a partition. `file`: the segment that has it."""

    topic: str
    partition: int
    offset: int
    file: str
    error: str


class Loader:
    """The task that loads partitions of `topic` into a coordinator, which `handle` passes events to.

    `skipped` has the batches without which the current state of each partition was loaded. No load ends while the
    metadata lacks the topic. `LoadFinished` follows as soon as the end of the partition is reached, before the event
    loop does other work.
    """

    def __init__(
        self,
        handle: Callable[[Any], None],
        topic: InternalTopic,
        open_reader: Callable[[TopicPartition], PartitionReader],
        pauses: Pauses,
        clock: Clock,
        tasks: Tasks,
    ) -> None:
        self._handle = handle
        self._topic = topic
        self._open_reader = open_reader
        self._pauses = pauses
        self._clock = clock
        self._tasks = tasks
        self._loads: dict[int, Load] = {}
        self._is_running = False
        self.skipped: dict[int, list[SkippedBatch]] = {}

    def start(self, command: LoadPartition) -> None:
        """Start loading a partition from its beginning. An earlier load of the partition ends."""
        partition, epoch = command
        tp = TopicPartition(self._topic.settings.name, partition)
        self._loads[partition] = Load(tp, epoch, self._clock.now())
        self.skipped.pop(partition, None)
        if not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._run(), f"load {tp.topic}")

    def cancel(self, partition: int) -> None:
        """Forget a partition that this broker no longer coordinates, and cancel its load if one is in progress."""
        self._loads.pop(partition, None)
        self.skipped.pop(partition, None)

    def is_loading(self, partition: int) -> bool:
        """True if a load of the partition is in progress."""
        return partition in self._loads

    async def _run(self) -> None:
        try:
            while self._loads:
                progress = False
                for load in tuple(self._loads.values()):
                    progress |= await self._advance(load)
                await (self._pauses.pause() if progress else self._clock.sleep(_WAIT_MS))
        finally:
            self._is_running = False

    async def _advance(self, load: Load) -> bool:
        """Load the next chunk of the partition, or finish the load at the partition's end.

        Return False if the load must wait.
        """
        try:
            if load.reader is None:
                load.reader = self._open_reader(load.tp)
            chunk = load.reader.read(self._topic.settings.load_bytes)
            if chunk:
                await self._decode(load, chunk)
                return True
            # Without the topic in the metadata, its number of partitions is unknown, and so is which keys it has here.
            is_whole = load.reader.at_end() and self._topic.exists
        except KafkaError as error:
            cause = error.__cause__
            if isinstance(cause, StorageFailed) and cause.lacks_descriptors:
                return False
            # The leader epoch has ended. The next epoch loads the partition again.
            logger.info("stopped loading %s: %s", load.tp, error)
            self._drop(load)
            return True
        if is_whole and self._is_current(load):
            self._finish(load)
        return is_whole

    async def _decode(self, load: Load, chunk: bytes) -> None:
        """Pass the records and markers of a chunk to the coordinator, in steps of `_STEP_RECORDS` records."""
        read = read_chunk(chunk, partial(self._skip, load))
        while self._is_current(load):
            step = list(islice(read, _STEP_RECORDS))
            if not step:
                return
            load.count += len(step)
            self._pass_on(load, step)
            await self._pauses.pause()

    def _skip(self, load: Load, offset: int, error: CorruptBatch) -> None:
        """Note a corrupt batch, so that the state in the other batches stays available."""
        file = "" if load.reader is None else load.reader.file_of(offset)
        text = "skipping a corrupt batch of %s at offset %d in %s: %s"
        logger.error(text, load.tp, offset, file, error)
        batch = SkippedBatch(load.tp.topic, load.partition, offset, file, str(error))
        self.skipped.setdefault(load.partition, []).append(batch)

    def _pass_on(self, load: Load, step: list[LoadedRecord | Marker]) -> None:
        for kind, run in groupby(step, type):
            if kind is LoadedRecord:
                self._handle(RecordsRead(load.partition, load.epoch, run))  # type: ignore[arg-type]
                continue
            for producer_id, committed in run:  # type: ignore[misc]
                self._handle(TransactionEnded(load.partition, producer_id, committed))

    def _finish(self, load: Load) -> None:
        self._drop(load)
        took_ms = self._clock.now() - load.begun
        logger.info("loaded %d records from %s in %d ms", load.count, load.tp, took_ms)
        self._handle(LoadFinished(load.partition, load.epoch, self._topic.partition_count))

    def _drop(self, load: Load) -> None:
        if self._is_current(load):
            del self._loads[load.partition]

    def _is_current(self, load: Load) -> bool:
        return self._loads.get(load.partition) is load


def read_chunk(
    chunk: bytes, on_corrupt: Callable[[int, CorruptBatch], None]
) -> Iterator[LoadedRecord | Marker]:
    """Yield the records and the transaction markers of whole batches, in order.

    Corrupt batches are left out. `on_corrupt(offset, error)` is called for each of them with its base offset.
    """
    view = memoryview(chunk)
    at = 0
    while len(view) - at >= HEADER_BYTES:
        header = HEADER.unpack_from(view, at)
        batch = view[at : at + OVERHEAD + header[BATCH_LENGTH]]
        at += len(batch)
        attributes = header[ATTRIBUTES]
        producer_id = header[PRODUCER_ID] if attributes & TRANSACTIONAL else NO_TRANSACTION
        try:
            if attributes & CONTROL:
                yield marker_of(batch)
            else:
                for _, _, key, value, _ in records(batch):
                    yield LoadedRecord(key, value, producer_id)
        except CorruptBatch as error:
            on_corrupt(header[BASE_OFFSET], error)
