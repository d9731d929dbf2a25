"""A reader of one partition for coordinators that load their state from it."""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.replication.partition import Partition

_NO_GENERATION: Final = -1
_NO_POSITION: Final = -1


class PartitionReader:
    """Reads a led partition from its log start offset up to its high watermark, in chunks of whole batches.

    `offset` is the next offset to be read; the batch that holds it may begin below it. A reader belongs to the
    leader epoch in which it was made.
    """

    __slots__ = ("_generation", "_leader_epoch", "_partition", "_position", "offset")

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._generation = _NO_GENERATION
        self._position = _NO_POSITION
        self.offset = partition.log_start_offset

    def read(self, max_bytes: int) -> bytes:
        """Return the next whole batches, or b"" when `offset` has reached the current high watermark.

        A chunk has at least one batch and, unless that batch alone is larger, at most `max_bytes`. A chunk ends
        at the end of a segment too, so a short chunk is not the last one. Raises KafkaError when this broker
        does not lead the partition in the reader's leader epoch any more, StorageFailed when the disk fails.
        """
        self._check_leader_epoch()
        partition = self._partition
        limit_offset, limit_position = partition.read_limit(read_committed=False)
        if self.offset < partition.log_start_offset:
            self.offset = partition.log_start_offset
            self._generation = _NO_GENERATION
        if self.offset >= limit_offset:
            return b""
        log = partition.log
        if self._generation != log.layout_generation:
            self._position = log.locate(self.offset)
            self._generation = log.layout_generation
        data, next_offset, self._position = log.read(self._position, limit_position, max_bytes)
        self.offset = next_offset if data else limit_offset
        return data

    def at_end(self) -> bool:
        """Return True when every committed record has been read.

        False while the high watermark of a new leader may be lower than the former leader's: records that were
        acknowledged lie above it then. Raises KafkaError as `read` does.
        """
        self._check_leader_epoch()
        partition = self._partition
        return partition.latest_offset_is_known and self.offset >= partition.high_watermark

    def _check_leader_epoch(self) -> None:
        partition = self._partition
        error = partition.check_leader_epoch(self._leader_epoch)
        if error:
            raise KafkaError(ErrorCode(error), f"reading {partition.tp} at offset {self.offset}")
