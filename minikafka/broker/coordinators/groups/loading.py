"""Loading of groups: a new coordinator reads its partitions of `__consumer_offsets` in the background.

One task reads all partitions that this broker has begun to lead. Invariants: no step of the task decodes
more than `_STEP_RECORDS` records, and the event loop does other work between two steps. A load ends only when
every record that an earlier leader acknowledged has been read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from itertools import islice
from typing import Any, Final, Protocol

from minikafka.base.errors import KafkaError, StorageFailed
from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC
from minikafka.base.ports import Clock, Tasks
from minikafka.broker.coordinators.groups.transactions import CommittedRecords
from minikafka.replication.reader import PartitionReader

logger = logging.getLogger(__name__)

_STEP_RECORDS: Final = 200
"""Records that are decoded in one step, which takes about two milliseconds."""
_WAIT_MS: Final = 10
"""Pause (ms) while all loads wait for the followers of their partitions to fetch."""


class Target(Protocol):
    """The receiver of the loaded records: the group coordinator."""

    def load(self, partition: int, epoch: int, records: Any) -> None:
        """Process the next records of the partition."""


class Load:
    """The load of one partition in one leader epoch."""

    def __init__(self, partition: int, epoch: int, begun: int) -> None:
        self.partition = partition
        self.epoch = epoch
        self.begun = begun
        """Start of the load, in monotonic ms."""
        self.tp = TopicPartition(GROUP_TOPIC, partition)
        self.reader: PartitionReader | None = None
        self.committed = CommittedRecords()
        self.count = 0


class Loader:
    """The task that loads partitions.

    Each read returns at most `chunk_bytes`, or one larger batch. `may_finish()` is False while the metadata
    lacks `__consumer_offsets`; no load ends during this time. `on_loaded(partition, epoch)` is called as soon
    as the end of the partition is reached, before the event loop does other work.
    """

    def __init__(
        self,
        target: Target,
        open_reader: Callable[[TopicPartition], PartitionReader],
        chunk_bytes: int,
        clock: Clock,
        tasks: Tasks,
        may_finish: Callable[[], bool],
        on_loaded: Callable[[int, int], None],
    ) -> None:
        self._target = target
        self._open_reader = open_reader
        self._chunk_bytes = chunk_bytes
        self._clock = clock
        self._tasks = tasks
        self._may_finish = may_finish
        self._on_loaded = on_loaded
        self._loads: dict[int, Load] = {}
        self._is_running = False

    def start(self, partition: int, epoch: int) -> None:
        """Start loading the partition from its beginning, for this leader epoch."""
        self._loads[partition] = Load(partition, epoch, self._clock.now())
        if not self._is_running:
            self._is_running = True
            self._tasks.spawn(self._run(), "load groups")

    def cancel(self, partition: int) -> None:
        """Cancel the load of a partition, if one is in progress."""
        self._loads.pop(partition, None)

    async def _run(self) -> None:
        try:
            while self._loads:
                progress = False
                for load in tuple(self._loads.values()):
                    progress |= await self._advance(load)
                await self._clock.sleep(0 if progress else _WAIT_MS)
        finally:
            self._is_running = False

    async def _advance(self, load: Load) -> bool:
        """Load the next chunk of the partition, or finish the load at the partition's end.

        Return False if the load must wait.
        """
        try:
            if load.reader is None:
                load.reader = self._open_reader(load.tp)
            chunk = load.reader.read(self._chunk_bytes)
            if chunk:
                await self._decode(load, chunk)
                return True
            is_whole = load.reader.at_end() and self._may_finish()
        except KafkaError as error:
            cause = error.__cause__
            if isinstance(cause, StorageFailed) and cause.lacks_descriptors:
                return False
            # The leader epoch has ended. The next epoch loads the groups again.
            logger.info("stopped loading groups from %s: %s", load.tp, error)
            self._drop(load)
            return True
        if is_whole and self._is_current(load):
            self._finish(load)
        return is_whole

    async def _decode(self, load: Load, chunk: bytes) -> None:
        """Pass the records of a chunk to the coordinator, in steps of `_STEP_RECORDS` records."""
        records = load.committed.records(chunk)
        while self._is_current(load):
            step = list(islice(records, _STEP_RECORDS))
            if not step:
                return
            load.count += len(step)
            self._target.load(load.partition, load.epoch, step)
            await self._clock.sleep(0)

    def _finish(self, load: Load) -> None:
        self._drop(load)
        took_ms = self._clock.now() - load.begun
        logger.info("loaded %d records of groups from %s in %d ms", load.count, load.tp, took_ms)
        self._on_loaded(load.partition, load.epoch)

    def _drop(self, load: Load) -> None:
        if self._is_current(load):
            del self._loads[load.partition]

    def _is_current(self, load: Load) -> bool:
        return self._loads.get(load.partition) is load
