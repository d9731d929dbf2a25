"""The segments that were removed from their logs and whose files are deleted later, after `file.delete.delay.ms`.

Their files have the suffix `.deleted`, so that the next start deletes those that are left. Until the delay is over they
can be read: a response that names records of a removed segment is still sent.
"""

from __future__ import annotations

from minikafka.log.segment import Segment


class RetiredSegments:
    """The removed segments of the logs of one directory."""

    __slots__ = ("_delayed", "_new")

    def __init__(self) -> None:
        self._new: list[tuple[int, Segment]] = []
        """Each with the delay in milliseconds, which begins with the next call of `take_due`."""
        self._delayed: list[tuple[int, Segment]] = []
        """Each with the monotonic time (ms) from which its files may be deleted."""

    def add(self, segment: Segment, delay_ms: int) -> None:
        """Keep a segment whose files were renamed until the delay is over."""
        self._new.append((delay_ms, segment))

    def take_due(self, now: int, most: int) -> list[Segment]:
        """Return at most `most` segments whose delay is over at this time (monotonic ms), and forget them."""
        self._delayed += [(now + delay_ms, segment) for delay_ms, segment in self._new]
        self._new.clear()
        due = [entry for entry in self._delayed if entry[0] <= now][:most]
        if due:
            taken = {id(segment) for _, segment in due}
            self._delayed = [entry for entry in self._delayed if id(entry[1]) not in taken]
        return [segment for _, segment in due]

    def close(self, directory: str = "") -> None:
        """Close the segments of the log in this directory, or all of them; their files stay."""
        for entries in (self._new, self._delayed):
            for entry in [entry for entry in entries if directory in ("", entry[1].directory)]:
                entries.remove(entry)
                entry[1].close()
