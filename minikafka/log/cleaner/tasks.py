"""Creation of the `CleaningTask` of one log from the state of the log."""

from __future__ import annotations

from minikafka.log.cleaner.dirt import Dirt
from minikafka.log.cleaner.task import CleaningTask
from minikafka.log.log import Log

_NONE = -1


def task_of(
    log: Log,
    dirt: Dirt,
    wall_ms: int,
    *,
    dedupe_bytes: int,
    load_factor: float,
    io_bytes: int,
    bytes_per_second: float,
) -> CleaningTask:
    """Return the task that cleans the log up to the uncleanable offset; `wall_ms` is the current Unix time.

    The transaction indexes, which the cleaning reads, are written if their files lack entries. Raises StorageFailed.
    """
    for segment in log.segments:
        segment.transactions.write()
    bases = [segment.base_offset for segment in log.segments]
    return CleaningTask(
        directory=log.directory,
        segments=[base for base in bases if base < dirt.uncleanable_offset],
        later_segments=[base for base in bases if base >= dirt.uncleanable_offset],
        segment_bytes=log.config.segment_bytes,
        index_bytes=log.config.segment_index_bytes,
        first_dirty_offset=dirt.first_dirty_offset,
        uncleanable_offset=dirt.uncleanable_offset,
        now_ms=wall_ms,
        delete_retention_ms=log.config.delete_retention_ms,
        index_interval_bytes=log.config.index_interval_bytes,
        producers=[list(each) for each in log.producers.last_batches()],
        kept_end=_kept_end(log),
        dedupe_bytes=dedupe_bytes,
        load_factor=load_factor,
        io_bytes=io_bytes,
        bytes_per_second=bytes_per_second,
    )


def _kept_end(log: Log) -> int:
    """Return the last offset of the log if the active segment is empty, else -1.

    A follower's log ends after the last batch that the follower copied, and the follower joins the ISR only when
    it reaches the leader's log end. Therefore the batch before an empty active segment stays, even without records.
    """
    is_empty = log.log_end_offset == log.segments[-1].base_offset
    return log.log_end_offset - 1 if is_empty else _NONE
