"""The newest lines of ledger files on this machine: once, or again and again while brokers write them.

Ledgers may have 128 MiB each, and their lines take ten times as much memory when they are parsed. So everything here
has a limit in bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from os import SEEK_END
from pathlib import Path
from typing import Any, Final, NamedTuple

from minikafka.broker.ledger.pages import Wanted
from minikafka.broker.ledger.reader import Line, merged, parsed_lines
from minikafka.broker.ledger.writer import file_name, number_of

_FIRST_BYTES: Final = 128 * 1024
"""Bytes of each ledger that the first read returns."""
_READ_BYTES: Final = 256 * 1024
"""Bytes of one ledger that one read returns. A ledger that grows faster is read in several turns."""


class LedgerFiles:
    """A reader that remembers how far it has read each broker's ledger."""

    def __init__(self) -> None:
        self._positions: dict[int, tuple[int, int]] = {}
        """By broker id: number of the ledger file, and the offset of the next line in it."""

    def read(self, directories: Mapping[int, Path]) -> list[dict[str, Any]]:
        """Return the new lines of these ledgers, merged by time. `directories`: by broker id."""
        return merged([[*self._read(broker, folder)] for broker, folder in directories.items()])

    def _read(self, broker: int, folder: Path) -> list[dict[str, Any]]:
        try:
            numbers = sorted(
                n for n in (number_of(path.name) for path in folder.iterdir()) if n is not None
            )
        except OSError:
            return []
        if not numbers:
            return []
        if broker not in self._positions:
            self._positions[broker] = numbers[-1], self._tail(folder / file_name(numbers[-1]))
        lines: list[dict[str, Any]] = []
        for number in numbers:
            current, offset = self._positions[broker]
            if number >= current:
                start = offset if number == current else 0
                data = _whole_lines(folder / file_name(number), start)
                self._positions[broker] = number, start + len(data)
                lines += parsed_lines(data.splitlines())
        return lines

    def _tail(self, file: Path) -> int:
        """Return the offset of the first whole line of the last _FIRST_BYTES."""
        with suppress(OSError):
            offset = file.stat().st_size - _FIRST_BYTES
            if offset > 0:
                with file.open("rb") as opened:
                    opened.seek(offset)
                    return offset + len(opened.readline())
        return 0


def _whole_lines(file: Path, offset: int) -> bytes:
    try:
        with file.open("rb") as opened:
            opened.seek(offset)
            data = opened.read(_READ_BYTES)
    except OSError:
        return b""
    return data[: data.rfind(b"\n") + 1]


class NewestLines(NamedTuple):
    """Lines of one ledger, the oldest first. `is_cut`: older ones were left out."""

    lines: list[Line]
    is_cut: bool


def newest_lines(
    folder: Path, is_wanted: Wanted, scanned_bytes: int, wanted_bytes: int
) -> NewestLines:
    """Return the newest wanted lines of a ledger: from its last `scanned_bytes`, at most `wanted_bytes` of them."""
    pieces: list[bytes] = []
    is_cut = False
    for line in _newest_first(folder):
        is_kept = is_wanted(line)
        scanned_bytes -= len(line) + 1
        wanted_bytes -= len(line) if is_kept else 0
        if is_cut := scanned_bytes < 0 or wanted_bytes < 0:
            break
        if is_kept:
            pieces.append(line)
    return NewestLines([*parsed_lines(reversed(pieces))], is_cut)


def ledger_files(folder: Path) -> list[Path]:
    """Return the files of a ledger, the oldest first; [] if the folder is none."""
    try:
        paths = [path for path in folder.iterdir() if number_of(path.name) is not None]
    except OSError:
        return []
    return sorted(paths, key=lambda path: number_of(path.name) or 0)


def _newest_first(folder: Path) -> Iterator[bytes]:
    """Yield the lines of a ledger, the newest first, from pieces of its files: it may be much larger than a view."""
    for file in reversed(ledger_files(folder)):
        with suppress(OSError), file.open("rb") as opened:  # OSError: the writer removed it
            end, rest = opened.seek(0, SEEK_END), b""
            while end > 0:
                start = max(0, end - _READ_BYTES)
                opened.seek(start)
                rest, *lines = (opened.read(end - start) + rest).split(b"\n")
                yield from filter(None, reversed(lines))
                end = start
            if rest:
                yield rest
