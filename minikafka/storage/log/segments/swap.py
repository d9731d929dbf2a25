"""The renames that replace segments by their compacted copy, so that a crash at any point loses nothing.

As in Kafka: the copy's files get the suffix `.swap` instead of `.cleaned`; then the files of the replaced segments are
renamed to `.deleted`; then `.swap` is removed from the names. The copy becomes valid when its last file
has the suffix `.swap`. If the broker crashes before that moment, `finish_swaps` removes the copy. If the
broker crashes later, `finish_swaps` completes the swap.

Invariant: the copy's log keeps its suffix until the names of the replaced segments are durably gone. After a power
loss, a replaced segment could otherwise be back behind its copy, and recovery would delete all later segments.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from minikafka.base.names import offsets_of
from minikafka.base.ports import File, Storage
from minikafka.kafka.records.header import BASE_OFFSET, LAST_OFFSET_DELTA
from minikafka.storage.log.segments.segment import INDEX, LOG, TIME_INDEX, Segment
from minikafka.storage.log.segments.transaction_index import TXN_INDEX

logger = logging.getLogger(__name__)

CLEANED: Final = ".cleaned"
"""Suffix of the files of a compacted copy until the swap begins."""
SWAP: Final = ".swap"

_KINDS: Final = (INDEX, TIME_INDEX, TXN_INDEX, LOG)
"""Suffixes of a segment's files. The log is renamed last: while its name ends with `.swap`, the swap is incomplete."""
_INDEXES: Final = _KINDS[:-1]


def begin(first: Segment) -> None:
    """Rename the copy to `….swap`. The copy is valid after an fsync of the directory. Raises StorageFailed."""
    _rename(first, _KINDS, CLEANED, SWAP)


def undo(first: Segment) -> None:
    """Undo `begin`: rename the copy back to `….cleaned`. Raises StorageFailed.

    After an fsync of the directory, the copy is no longer valid: the next start removes it.
    """
    _rename(first, _KINDS[::-1], SWAP, CLEANED)


def open_copy(first: Segment) -> File:
    """Open the log file of the copy, so that `replace` needs no file descriptor. Raises StorageFailed."""
    return first.storage.open(first.path(LOG + SWAP))


def replace(segments: Sequence[Segment], copy: File) -> Segment:
    """Replace the files of these neighbouring segments by the valid copy; return the copy as a segment.

    The replaced segments stay open and can be read; their files have the suffix `.deleted`. The copy's log keeps its
    suffix until `complete`. Raises StorageFailed; in that case the next start completes the swap.
    """
    first = segments[0]
    for segment in segments:
        segment.mark_deleted()
    _rename(first, _INDEXES, SWAP, "")
    place = first.storage, first.directory, first.base_offset, first.start, first.interval
    cleaned = Segment(*place, file=copy)
    if first.storage.exists(first.path(TXN_INDEX)):
        cleaned.transactions.load()
    return cleaned


def complete(first: Segment, copy: File) -> None:
    """Give the copy's log its final name. Call this when the directory was fsynced after `replace`.

    Raises StorageFailed.
    """
    _rename(first, (LOG,), SWAP, "")
    copy.path = first.path(LOG)


def _rename(segment: Segment, kinds: Sequence[str], old: str, new: str) -> None:
    for kind in kinds:
        if segment.storage.exists(segment.path(kind + old)):
            segment.storage.rename(segment.path(kind + old), segment.path(kind + new), sync=False)


def finish_swaps(storage: Storage, directory: str, interval: int) -> None:
    """Complete the swaps that a crash interrupted, and delete incomplete copies. Raises StorageFailed."""
    names = storage.names(directory)
    cleaned = _offsets(names, CLEANED)
    swapped = _offsets(names, SWAP)
    _remove(
        storage,
        directory,
        names,
        SWAP,
        [base for base in swapped if base >= min(cleaned, default=base + 1)],
    )
    _remove(storage, directory, names, CLEANED, cleaned)
    names = storage.names(directory)
    for base in offsets_of(names, LOG + SWAP):
        end_offset = _end_offset(storage, directory, base, interval)
        logger.info(
            "%s: completing the swap of the compacted offsets %d to %d",
            directory,
            base,
            end_offset - 1,
        )
        for kind in _KINDS:
            for replaced in offsets_of(names, kind):
                # A file with the copy's own base offset is overwritten, or is an index of the copy.
                if base < replaced < end_offset:
                    storage.remove(f"{directory}/{replaced:020d}{kind}")
        storage.sync_directory(directory)
    for kind in _KINDS:
        for base in offsets_of(names, kind + SWAP):
            path = f"{directory}/{base:020d}{kind}"
            storage.rename(path + SWAP, path, sync=False)
    if _offsets(names, SWAP):
        storage.sync_directory(directory)


def remove_copies(storage: Storage, directory: str) -> None:
    """Remove the compacted copies whose swap has not begun. Raises StorageFailed."""
    names = storage.names(directory)
    _remove(storage, directory, names, CLEANED, _offsets(names, CLEANED))


def _offsets(names: Iterable[str], suffix: str) -> set[int]:
    """Return the base offsets of segments that have at least one file with this suffix."""
    names = list(names)
    return {base for kind in _KINDS for base in offsets_of(names, kind + suffix)}


def _remove(
    storage: Storage, directory: str, names: list[str], suffix: str, bases: Iterable[int]
) -> None:
    for base in bases:
        for kind in _KINDS:
            if f"{base:020d}{kind}{suffix}" in names:
                storage.remove(f"{directory}/{base:020d}{kind}{suffix}")


def _end_offset(storage: Storage, directory: str, base: int, interval: int) -> int:
    """Return the offset after the last batch of a compacted copy whose swap is incomplete."""
    file = storage.open(f"{directory}/{base:020d}{LOG}{SWAP}")
    try:
        copy = Segment(storage, directory, base, 0, interval, file=file)
        end_offset = base
        for _, header in copy.headers(0, file.size()):
            end_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
    finally:
        file.close()
    return end_offset
