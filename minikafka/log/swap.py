"""The renames that replace segments by their compacted copy, so that a crash at any point loses nothing.

As in Kafka: the copy's files get the suffix `.swap` instead of `.cleaned`; then the files of the replaced segments are
renamed to `.deleted`; then `.swap` is removed from the names. The copy becomes valid when its last file
has the suffix `.swap`. If a crash comes before that moment, `finish_swaps` removes the copy; if it comes
after that moment, `finish_swaps` completes the swap.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from minikafka.base.names import offsets_of
from minikafka.base.ports import Storage
from minikafka.log.segment import INDEX, LOG, TIME_INDEX, Segment
from minikafka.record.batch import BASE_OFFSET, LAST_OFFSET_DELTA

logger = logging.getLogger(__name__)

CLEANED: Final = ".cleaned"
"""Suffix of the files of a copy that is being made."""
SWAP: Final = ".swap"

_KINDS: Final = (INDEX, TIME_INDEX, ".txnindex", LOG)
"""The files of a segment, the log last: while it has the suffix `.swap`, the swap is not complete."""


def begin(first: Segment) -> None:
    """Rename the copy to `….swap`: it is valid once the directory is fsynced. Raises StorageFailed."""
    _rename(first, _KINDS, CLEANED, SWAP)


def undo(first: Segment) -> None:
    """Rename the copy back: it is not valid any more once the directory is fsynced. Raises StorageFailed."""
    _rename(first, _KINDS[::-1], SWAP, CLEANED)


def complete(segments: Sequence[Segment]) -> Segment:
    """Replace the files of these neighbouring segments by the valid copy; return the copy as a segment.

    The segments stay open and can be read; their files have the suffix `.deleted`. Raises StorageFailed, after which
    the next start completes the swap.
    """
    first = segments[0]
    for segment in segments:
        segment.mark_deleted()
    _rename(first, _KINDS, SWAP, "")
    return Segment(first.storage, first.directory, first.base_offset, first.start, first.interval)


def _rename(segment: Segment, kinds: Sequence[str], old: str, new: str) -> None:
    for kind in kinds:
        if segment.storage.exists(segment.path(kind + old)):
            segment.storage.rename(segment.path(kind + old), segment.path(kind + new), sync=False)


def finish_swaps(storage: Storage, directory: str, interval: int) -> None:
    """Complete the swap that a crash interrupted; remove copies not yet valid. Raises StorageFailed."""
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
                if base <= replaced < end_offset:
                    storage.remove(f"{directory}/{replaced:020d}{kind}")
    for kind in _KINDS:
        for base in offsets_of(names, kind + SWAP):
            path = f"{directory}/{base:020d}{kind}"
            storage.rename(path + SWAP, path, sync=False)
    if _offsets(names, SWAP):
        storage.sync_directory(directory)


def remove_copies(storage: Storage, directory: str) -> None:
    """Remove the copies that were not put in place. Raises StorageFailed."""
    names = storage.names(directory)
    _remove(storage, directory, names, CLEANED, _offsets(names, CLEANED))


def _offsets(names: Iterable[str], suffix: str) -> set[int]:
    """Return the base offsets of the segments that have a file whose name ends with this suffix."""
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
    """Return the offset after the last batch of a copy that is being swapped in."""
    file = storage.open(f"{directory}/{base:020d}{LOG}{SWAP}")
    try:
        copy = Segment(storage, directory, base, 0, interval, file=file)
        end_offset = base
        for _, header in copy.headers(0, file.size()):
            end_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
    finally:
        file.close()
    return end_offset
