"""The transactions in one pass of a cleaning, and the markers that are no longer needed.

A marker stays while batches of its transaction are in the log, and then for the delete retention time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from minikafka.record.header import ATTRIBUTES, BASE_OFFSET, PRODUCER_ID, TRANSACTIONAL, Header
from minikafka.record.transactions import ABORT, COMMIT, Aborted, AbortedBatches


class Transactions:
    """The transactions in progress during one pass over the log, which may begin at any segment.

    `find_aborted` is called once, when the pass meets the first transactional batch or marker.
    """

    def __init__(self, find_aborted: Callable[[], Iterable[Aborted]]) -> None:
        self._find_aborted = find_aborted
        self._aborted: AbortedBatches | None = None
        self._met: set[int] = set()
        """Producers of which the pass has met a batch in the transaction in progress."""
        self.needed_markers: set[int] = set()
        """Offsets of the markers of whose transactions the pass has met a batch."""

    def is_aborted(self, header: Header) -> bool:
        """Return True if the batch, which is not a control batch, belongs to an aborted transaction."""
        if not header[ATTRIBUTES] & TRANSACTIONAL:
            return False
        self._met.add(header[PRODUCER_ID])
        return self._batches(header).is_aborted(header)

    def is_marker_needless(self, header: Header, kind: int | None) -> bool:
        """Return True if the marker can be removed, because no batch of its transaction is left.

        `kind`: `ABORT` or `COMMIT`, None for a marker whose record was removed by an earlier cleaning.
        """
        self._batches(header).is_aborted(header)  # ends the transaction
        was_met = header[PRODUCER_ID] in self._met
        if was_met:
            self.needed_markers.add(header[BASE_OFFSET])
        self._met.discard(header[PRODUCER_ID])
        return kind is None or (kind in (ABORT, COMMIT) and not was_met)

    def _batches(self, header: Header) -> AbortedBatches:
        if self._aborted is None:
            start = header[BASE_OFFSET]
            found = (each for each in self._find_aborted() if each.last_offset >= start)
            self._aborted = AbortedBatches(found)
        return self._aborted
