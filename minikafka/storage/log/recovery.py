"""Opening the files of one log, and recovery after an unclean stop.

Invariant: opening a log twice has the same result as opening it once. After an unclean stop every batch is checked,
from the segment of the recovery point on. The log is truncated at the first batch that is torn or follows a gap that
the log does not accept. Epochs, indexes and producer state are truncated at the same offset, and later segments are
deleted (S34, S35, R25).
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from itertools import pairwise, zip_longest
from typing import Final, NamedTuple

from minikafka.base.config import TopicConfig
from minikafka.base.names import offsets_of
from minikafka.base.ports import Storage
from minikafka.kafka.records.header import (
    ATTRIBUTES,
    BASE_OFFSET,
    CONTROL,
    HEADER_BYTES,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    Header,
)
from minikafka.storage.log import epochs as epoch_file
from minikafka.storage.log.checkpoints import PARTITION_METADATA
from minikafka.storage.log.epochs import LeaderEpochs
from minikafka.storage.log.producers import ProducerStates
from minikafka.storage.log.replay import batches_from, rebuild_transaction_indexes, reload_producers
from minikafka.storage.log.segments.segment import DELETED, INDEX, LOG, TIME_INDEX, Segment
from minikafka.storage.log.segments.swap import finish_swaps
from minikafka.storage.log.segments.transaction_index import TXN_INDEX

logger = logging.getLogger(__name__)

Entries = list[tuple[int, int]]
"""Leader epochs as (epoch, start offset), rising."""

_LEFTOVERS: Final = (".tmp", DELETED)


class Loaded(NamedTuple):
    """The parts of an opened log. There is at least one segment; `end_position` is an absolute byte position.

    `lost_from`: the first offset that is missing between two segments of a log that accepts no gaps, or None.
    """

    segments: list[Segment]
    epochs: LeaderEpochs
    producers: ProducerStates
    log_start_offset: int
    log_end_offset: int
    end_position: int
    lost_from: int | None = None


def load(
    storage: Storage,
    directory: str,
    config: TopicConfig,
    *,
    clean: bool,
    recovery_point: int,
    log_start_offset: int,
    accept_gaps: bool,
) -> Loaded:
    """Open the log in the directory, or create it, and return its parts. Raises StorageFailed.

    `clean`: the log was closed properly, so it needs recovery only if its epoch file is missing.
    `accept_gaps`: the log is or was compacted, so it may have missing offsets.
    """
    if storage.make_directories(directory, sync=False) or _is_unused(storage.names(directory)):
        return _new(storage, directory, config.index_interval_bytes, max(log_start_offset, 0))
    segments = _open_segments(storage, directory, config.index_interval_bytes)
    _delete_below(segments, log_start_offset)
    known = _read_epochs(storage, directory)
    first = _first_to_recover(segments, recovery_point, known, clean=clean)
    entries = [
        entry
        for entry in known or ()
        if first == len(segments) or entry[1] < segments[first].base_offset
    ]
    position, end_offset = _recover_from(segments, first, entries, accept_gaps)
    lost_from = None if accept_gaps else _first_lost_offset(segments)
    if not segments or end_offset < log_start_offset:
        _delete_all(segments, directory, end_offset, log_start_offset)
        position, end_offset = 0, max(log_start_offset, 0)
        segments = [Segment.create(storage, directory, end_offset, 0, config.index_interval_bytes)]
    log_start_offset = max(log_start_offset, segments[0].base_offset)
    end_position = segments[-1].start + position
    epochs = LeaderEpochs(
        storage, f"{directory}/{epoch_file.FILE_NAME}", entries, is_new=known is None
    )
    epochs.truncate_from_start(log_start_offset)
    epochs.truncate_from_end(end_offset)
    if known is not None and not accept_gaps and lost_from is None:
        _check_epochs(epochs, Batches(segments, log_start_offset, end_offset, end_position))
    if epochs.entries != (known or []):
        epochs.sync()
    assert log_start_offset <= end_offset, (directory, log_start_offset, end_offset)
    producers = ProducerStates(storage, directory)
    if not clean:  # a snapshot above the recovery point may describe batches that were cut
        producers.remove_snapshots_above(max(recovery_point, segments[0].base_offset))
    rebuild_transaction_indexes(producers, segments, end_position)
    reload_producers(producers, segments, end_offset, end_position)
    return Loaded(
        segments, epochs, producers, log_start_offset, end_offset, end_position, lost_from
    )


class Batches(NamedTuple):
    """The batches of a log without gaps, from log start to log end, for a check of the leader epochs."""

    segments: list[Segment]
    start: int
    end: int
    end_position: int

    def have_epochs(self, entries: Entries) -> bool:
        """True if `entries` agree with the leader epochs in the batches and cover exactly the offsets of the log.

        It is enough to check the first and the last batch of each epoch, because epochs never decrease from
        batch to batch. Without this check, a follower with an epoch that no leader had would never join the
        ISR, and a leader with a wrong start offset would let followers keep diverging records. Also True if
        the log is empty or the batches have no epochs.
        """
        if self.start == self.end or self._epoch_at(self.start) < 0:
            return True
        if not entries or entries[0][1] != self.start:
            return False
        ends = [*(start for _, start in entries[1:]), self.end]
        return all(
            self._epoch_at(first) == self._epoch_at(after - 1) == epoch
            for (epoch, first), after in zip(entries, ends, strict=True)
        )

    def epochs(self) -> Entries:
        """Return the epochs of all batches, each with its first offset."""
        entries: Entries = []
        for _, _, header in batches_from(self.segments, self.start, self.end_position):
            if header[LEADER_EPOCH] > (entries[-1][0] if entries else -1):
                entries.append((header[LEADER_EPOCH], max(header[BASE_OFFSET], self.start)))
        return entries

    def _epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the batch that contains the offset."""
        slot = bisect_right(self.segments, offset, key=_base_offset) - 1
        segment = self.segments[slot]
        is_last = slot == len(self.segments) - 1
        size = (self.end_position if is_last else self.segments[slot + 1].start) - segment.start
        position = segment.find(offset, size) if offset > segment.base_offset else 0
        for _, header in segment.headers(position, size, HEADER_BYTES):
            return int(header[LEADER_EPOCH])
        return -1


def _check_epochs(epochs: LeaderEpochs, batches: Batches) -> None:
    """If the leader epochs differ from the epochs in the batches, rebuild the leader epochs and their file."""
    if not batches.have_epochs(epochs.entries):
        logger.error("%s does not match the log and is rewritten", epochs.path)
        epochs.replace(batches.epochs())


def _is_unused(names: list[str]) -> bool:
    """True if the directory has no log files: no batch was appended before the broker stopped."""
    return not names or names == [PARTITION_METADATA]


def _new(storage: Storage, directory: str, interval: int, offset: int) -> Loaded:
    """Return an empty log without files; the first batch creates the files."""
    epochs = LeaderEpochs(storage, f"{directory}/{epoch_file.FILE_NAME}", [], is_new=True)
    segment = Segment.first(storage, directory, offset, interval, epochs.ensure_file)
    return Loaded([segment], epochs, ProducerStates(storage, directory), offset, offset, 0)


def _open_segments(storage: Storage, directory: str, interval: int) -> list[Segment]:
    finish_swaps(storage, directory, interval)
    names = storage.names(directory)
    bases = offsets_of(names, LOG)
    for name in names:
        stem, dot, suffix = name.rpartition(".")
        kind = dot + suffix
        orphan = kind in (INDEX, TIME_INDEX, TXN_INDEX) and stem + LOG not in names
        if orphan or name.endswith(_LEFTOVERS):
            storage.remove(f"{directory}/{name}")
    segments = []
    start = 0
    for base, following in zip_longest(bases, bases[1:]):
        segment = Segment(storage, directory, base, start, interval)
        if f"{base:020d}{TXN_INDEX}" in names:
            segment.transactions.load(following)
        segments.append(segment)
        start += segment.file.size()
    return segments


def _delete_below(segments: list[Segment], log_start_offset: int) -> None:
    """Delete the segments wholly below the log start offset, which were not removed before the broker stopped.

    After a power loss some of these segments may already be missing. That does no harm.
    """
    while len(segments) > 1 and segments[1].base_offset <= log_start_offset:
        segment = segments.pop(0)
        logger.info(
            "%s: deleting the segment, which lies below the log start offset %d",
            segment.path(LOG),
            log_start_offset,
        )
        segment.delete()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset


def _first_to_recover(
    segments: list[Segment], recovery_point: int, known: Entries | None, *, clean: bool
) -> int:
    """Return the index of the first segment to recover: the one that holds the recovery point.

    After a clean stop, return the number of segments: no segment is recovered. If there is no valid epoch file
    (`known` is None), always return 0: recovery of all segments finds the epochs.
    """
    if known is None:
        return 0
    if clean:
        return len(segments)
    return max(bisect_right(segments, recovery_point, key=_base_offset) - 1, 0)


class _FoundEpochs:
    """Appends the leader epochs of recovered batches to `entries`.

    The start offset of an epoch is the log end before the epoch's first batch, as in `Log.append_replicated`.
    `has_markers`: a control batch was recovered since the attribute was set to False.
    """

    def __init__(self, entries: Entries, expected: int) -> None:
        self._entries = entries
        self._expected = expected
        self.has_markers = False

    def on_batch(self, header: Header) -> None:
        if header[ATTRIBUTES] & CONTROL:
            self.has_markers = True
        if header[LEADER_EPOCH] > (self._entries[-1][0] if self._entries else -1):
            self._entries.append((header[LEADER_EPOCH], self._expected))
        self._expected = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1


def _recover_from(
    segments: list[Segment], first: int, epochs: Entries, accept_gaps: bool
) -> tuple[int, int]:
    """Recover segments[first:] and append their epochs to `epochs`; return (size of last segment, log end offset).

    The segments after a truncated segment or a gap are deleted, and removed from `segments`. After a clean stop,
    segments[first:] is empty. Then the last segment is recovered, but only if its file ends with a partial batch.
    """
    position = end_offset = 0
    if segments and first == len(segments):
        active = segments[-1]
        position, end_offset = active.resume()
        if position == active.file.size():
            return position, end_offset
        first -= 1
    found = _FoundEpochs(epochs, segments[first].base_offset if segments else 0)
    while first < len(segments):
        segment = segments[first]
        found.has_markers = False
        position, end_offset = segment.recover(found.on_batch, accept_gaps)
        segment.transactions.replace((), is_complete=not found.has_markers)
        is_torn = position < segment.file.size()
        first += 1
        if first < len(segments) and (
            is_torn or not _continues(segments[first], end_offset, accept_gaps)
        ):
            _drop(segments, first)
        # Last: if a crash left the cut segment before later ones, a compacted log would take the cut for a gap.
        _cut_torn_end(segment, position, end_offset)
        segment.write_index_files(sealed=first < len(segments))
    return position, end_offset


def _cut_torn_end(segment: Segment, position: int, end_offset: int) -> None:
    """Truncate the segment at `position`, after its last valid batch."""
    size = segment.file.size()
    if position == size:
        return
    logger.warning(
        "%s: removing the last %d bytes, which are not complete, valid batches; the log ends at offset %d",
        segment.path(LOG),
        size - position,
        end_offset,
    )
    segment.file.truncate(position)


def _continues(segment: Segment, end_offset: int, accept_gaps: bool) -> bool:
    """True if the segment begins at `end_offset`, or above `end_offset` in a log that accepts gaps."""
    return segment.base_offset == end_offset or (accept_gaps and segment.base_offset > end_offset)


def _first_lost_offset(segments: list[Segment]) -> int | None:
    """Return the first offset that is missing between two segments, None if no offset is missing.

    Offsets are missing if a segment file was removed. The segments after the gap stay, and a leader serves
    them, because possibly no other replica has their records.
    """
    for segment, following in pairwise(segments):
        end_offset = segment.end_offset()
        if end_offset != following.base_offset:
            logger.error(
                "%s: the records from offset %d up to the next segment at offset %d are missing",
                segment.path(LOG),
                end_offset,
                following.base_offset,
            )
            return end_offset
    return None


def _delete_all(
    segments: list[Segment], directory: str, end_offset: int, log_start_offset: int
) -> None:
    """Delete a log that ends below its log start offset. The last segment is deleted first: a crash leaves no gap."""
    if segments:
        logger.warning(
            "%s: deleting the log, which ends at offset %d, below its checkpointed log start offset %d",
            directory,
            end_offset,
            log_start_offset,
        )
    for segment in reversed(segments):
        segment.delete()


def _drop(segments: list[Segment], first: int) -> None:
    """Delete the segments from list index `first` on, the last one first, and make the deletions durable."""
    storage, directory = segments[0].storage, segments[0].directory
    while len(segments) > first:
        segment = segments.pop()
        logger.warning(
            "%s: deleting the segment, because the log was truncated before it",
            segment.path(LOG),
        )
        segment.delete()
    storage.sync_directory(directory)


def _read_epochs(storage: Storage, directory: str) -> Entries | None:
    """Return the entries of the epoch file, or None if the file is missing, empty or invalid.

    Kafka creates an empty file for a new log, and fills it when the first batch is appended.
    """
    path = f"{directory}/{epoch_file.FILE_NAME}"
    data = storage.read(path) if storage.exists(path) else b""
    if not data:
        return None
    try:
        return epoch_file.decode(data)
    except ValueError as error:
        logger.warning("ignoring the invalid file %s: %s", path, error)
        return None
