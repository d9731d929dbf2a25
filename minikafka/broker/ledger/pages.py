"""The ledger of a running broker in pages, for clients of other machines.

A page ends when it has PAGE_BYTES, or when SCANNED_BYTES were read for it, so that neither its memory nor its time
depends on the size of the ledger. A position is `FILE:OFFSET`: the number of a file, and the offset of a line in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import closing
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.errors import StorageFailed
from minikafka.base.ports import File, Storage
from minikafka.broker.ledger.writer import file_name, number_of

PAGE_BYTES: Final = 256 * 1024
SCANNED_BYTES: Final = 8 * 1024 * 1024
TAIL_BYTES: Final = 64 * 1024
"""Bytes before the end of the ledger at which a reader begins that follows it."""
STEP_BYTES: Final = 64 * 1024
"""Number of bytes that one step reads and searches, which takes less than 1 ms."""
_LINE_MAX: Final = 2 * 1024 * 1024
"""More bytes without a line end are no line."""
_POSITION: Final = re.compile(r"([0-9]{1,18}):([0-9]{1,18})")

Wanted: TypeAlias = Callable[[bytes], bool]
"""A test whether a line is wanted, from its bytes."""


class Page(NamedTuple):
    """Lines of a ledger without their line ends. `following`: the position of the next page, "" after the last one."""

    lines: list[bytes]
    following: str


def read_page(
    storage: Storage, directory: str, position: str, is_wanted: Wanted, *, follows: bool = False
) -> Generator[None, None, Page]:
    """Return the wanted lines from a position on, as a generator that yields between steps. "" is the beginning.

    `follows`: the reader wants later lines. Then "" is TAIL_BYTES before the end, and the last page has a position too.
    A file that was removed in the meantime is skipped. Raises ValueError for a position that is none, and
    StorageFailed.
    """
    number, offset = _parsed(position)
    if follows and not position:
        number, offset = _near_end(storage, directory)
    lines: list[bytes] = []
    size = scanned = 0
    last = position
    for current in _files_from(storage, directory, number):
        offset = offset if current == number else 0
        try:
            file = storage.open(f"{directory}/{file_name(current)}")
        except StorageFailed as failure:
            if isinstance(failure.cause, FileNotFoundError):
                continue
            raise
        with closing(file):
            while piece := _whole_lines(file, offset):
                offset += len(piece)
                found = [line for line in piece.splitlines() if is_wanted(line)]
                lines += found
                size += sum(map(len, found))
                scanned += len(piece)
                if size >= PAGE_BYTES or scanned >= SCANNED_BYTES:
                    return Page(lines, f"{current}:{offset}")
                yield
        last = f"{current}:{offset}"
    return Page(lines, last if follows else "")


def _near_end(storage: Storage, directory: str) -> tuple[int, int]:
    """Return the newest file, and the offset of a line in it that is at most TAIL_BYTES before its end."""
    number = max(_files_from(storage, directory, 0), default=0)
    if not number:
        return 0, 0
    with closing(storage.open(f"{directory}/{file_name(number)}")) as file:
        offset = file.size() - TAIL_BYTES
        if offset <= 0:
            return number, 0
        return number, offset + file.pread(_LINE_MAX, offset).find(b"\n") + 1


def _parsed(position: str) -> tuple[int, int]:
    if not position:
        return 0, 0
    match = _POSITION.fullmatch(position)
    if match is None:
        raise ValueError(f"{position!r} is no position of a ledger")
    return int(match[1]), int(match[2])


def _files_from(storage: Storage, directory: str, first: int) -> list[int]:
    """Return the numbers of the files, from the number `first` on, sorted."""
    found = map(number_of, storage.names(directory))
    return sorted(number for number in found if number is not None and number >= first)


def _whole_lines(file: File, offset: int) -> bytes:
    """Return lines that begin at the offset, each with its end; b"" at the end of the file."""
    for count in (STEP_BYTES, _LINE_MAX):
        data = file.pread(count, offset)
        if end := data.rfind(b"\n") + 1:
            return data[:end]
    return b""
