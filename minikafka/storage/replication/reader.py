"""A reader of one partition, which coordinators use to load their state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from minikafka.base.errors import ErrorCode, KafkaError, StorageFailed
from minikafka.storage.log.segments.segment import LOG
from minikafka.storage.replication.partition import Partition

_NO_GENERATION: Final = -1
_NO_POSITION: Final = -1


class PartitionReader:
    """Reads a partition that this broker leads, from the log start offset up to the high watermark.

    Each chunk contains whole batches. `offset` is the next offset to be read; the next batch may begin below `offset`.
    A reader can be used only in the leader epoch in which it was created. `on_storage_failed(partition, failure)`
    takes the log directory offline.

    The records include those of open and aborted transactions. The CRC of batches is not checked. After DeleteRecords
    the first chunk may begin with records below the log start offset.
    """

    __slots__ = (
        "_generation",
        "_leader_epoch",
        "_on_storage_failed",
        "_partition",
        "_position",
        "offset",
    )

    def __init__(
        self, partition: Partition, on_storage_failed: Callable[[Partition, StorageFailed], None]
    ) -> None:
        self._partition = partition
        self._on_storage_failed = on_storage_failed
        self._leader_epoch = partition.leader_epoch
        self._generation = _NO_GENERATION
        self._position = _NO_POSITION
        self.offset = partition.log_start_offset

    def read(self, max_bytes: int) -> bytes:
        """Return the next whole batches, or b"" when `offset` has reached the current high watermark.

        A chunk has at most `max_bytes`, or one batch that is larger. A chunk also ends at the end of a segment, so
        a short chunk is not always the last chunk. Raises KafkaError when this broker no longer leads the
        partition in the reader's leader epoch, or when the disk fails.
        """
        self._check_leader_epoch()
        partition = self._partition
        if self.offset < partition.log_start_offset:
            self.offset = partition.log_start_offset
            self._generation = _NO_GENERATION
        if self.offset >= partition.high_watermark:
            return b""
        log = partition.log
        try:
            limit_offset, limit_position = partition.read_limit(read_committed=False)
            if self._generation != log.layout_generation:
                self._position = log.locate(self.offset)
                self._generation = log.layout_generation
            data, next_offset, self._position = log.read(self._position, limit_position, max_bytes)
        except StorageFailed as failure:
            self._on_storage_failed(partition, failure)
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"reading {partition.tp}: {failure}"
            ) from failure
        self.offset = next_offset if data else limit_offset
        return data

    def file_of(self, offset: int) -> str:
        """Return the path of the log segment that has an offset."""
        segments = self._partition.log.segments
        return segments[segments.slot_of(offset)].path(LOG)

    def at_end(self) -> bool:
        """Return True when every committed record has been read.

        False right after an election, while acknowledged records may lie above the high watermark of the new
        leader (KIP-207). Raises KafkaError as `read` does.
        """
        self._check_leader_epoch()
        partition = self._partition
        return partition.latest_offset_is_known and self.offset >= partition.high_watermark

    def _check_leader_epoch(self) -> None:
        partition = self._partition
        error = partition.check_leader_epoch(self._leader_epoch)
        if error:
            raise KafkaError(ErrorCode(error), f"reading {partition.tp} at offset {self.offset}")
