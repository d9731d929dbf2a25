"""The ledger of one broker on its disk: JSON lines in files that rotate.

It lies in `LOG_DIR-ledger/`, beside the first log directory and never in it: a log directory may fail or be
emptied, and the ledger is to tell of it. Files are `ledger-NNNNNN.jsonl`, `FILE_BYTES` each; the
oldest goes when there are more than `FILES_MAX`. Lines are gathered and written once per turn of the
loop, without fsync; those of `WRITTEN_THROUGH` at once, with all before them. So a process that is killed
loses the lines of its last turn at most. Invariants: `record` never raises, and what could not be
written is counted, warned of once and told in the next line that can be; a file holds whole lines, but
for the last one after a crash, which the next start cuts off.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from minikafka.base.errors import StorageFailed
from minikafka.base.model import BrokerId
from minikafka.base.ports import Clock, File, Storage, Timer
from minikafka.ledger.record import LOST, WRITTEN_THROUGH

logger = logging.getLogger(__name__)

FILE_BYTES: Final = 16 * 1024 * 1024
FILES_MAX: Final = 8
PREFIX: Final = "ledger-"
SUFFIX: Final = ".jsonl"
_GATHERED_BYTES_MAX: Final = 1024 * 1024
_TAIL_BYTES: Final = 1024 * 1024
"""No line is longer: what follows the last line break of a file is a line that was not finished."""

_encode: Final = json.JSONEncoder(separators=(",", ":"), default=str).encode


def directory_of(log_dir: str) -> str:
    """Where the broker with this first log directory keeps its ledger."""
    return f"{log_dir.rstrip('/')}-ledger"


def file_name(number: int) -> str:
    """Name of the file with that number."""
    return f"{PREFIX}{number:06d}{SUFFIX}"


def number_of(name: str) -> int | None:
    """The number in a file's name; None for a file that is no ledger."""
    digits = name.removeprefix(PREFIX).removesuffix(SUFFIX)
    return int(digits) if digits.isdigit() and name == file_name(int(digits)) else None


class LedgerWriter:
    """The Ledger port over files of `directory`."""

    def __init__(self, storage: Storage, directory: str, broker_id: BrokerId, clock: Clock) -> None:
        self.lost = 0
        """Lines that could not be written and were not told of yet."""
        self._storage = storage
        self._directory = directory
        self._broker_id = broker_id
        self._clock = clock
        self._n = 0
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._timer: Timer | None = None
        self._file: File | None = None
        self._number = 0
        self._position = 0
        self._is_broken = False
        self._is_open = False
        self._why_lost = ""

    def record(self, kind: str, cause: str, fields: Mapping[str, Any]) -> None:
        """See Ledger. Before `open` and after `close` nothing is kept."""
        if not self._is_open:
            return
        self._n += 1
        line = {
            "time": self._clock.wall_ms(),
            "broker": self._broker_id,
            "n": self._n,
            "kind": kind,
            "cause": cause,
        }
        try:
            data = _encode(line | dict(fields)).encode() + b"\n"
        except (TypeError, ValueError) as error:
            self._lose(1, f"a line of kind {kind} cannot be told: {error}")
            return
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        if kind in WRITTEN_THROUGH or self._gathered_bytes > _GATHERED_BYTES_MAX:
            self.flush()
        elif self._timer is None:
            self._timer = self._clock.call_later(0, self.flush)

    # Files.

    def open(self) -> None:
        """Go on behind the last whole line of the newest file. Never raises."""
        self._is_open = True
        try:
            self._open_file()
        except StorageFailed as failure:
            self._fail(failure)

    def _open_file(self) -> File:
        """The file to go on with: the newest there is, or the one that a roll has named."""
        self._storage.make_directories(self._directory)
        self._number = self._number or max(self._numbers(), default=1)
        path = f"{self._directory}/{file_name(self._number)}"
        file = self._storage.open(path, create=True)
        self._go_on(file)
        self._file = file
        return file

    def _numbers(self) -> list[int]:
        found = map(number_of, self._storage.names(self._directory))
        return sorted(number for number in found if number is not None)

    def _go_on(self, file: File) -> None:
        """Cut off a line that was not finished, and count on from the last one."""
        size = file.size()
        start = max(0, size - _TAIL_BYTES)
        tail = file.pread(size - start, start)
        end = tail.rfind(b"\n") + 1
        self._position = start + end
        if self._position < size:
            file.truncate(self._position)
        with suppress(ValueError, KeyError, TypeError, IndexError):
            self._n = max(self._n, int(json.loads(tail[:end].splitlines()[-1])["n"]))

    def flush(self) -> None:
        """Write what was gathered. Never raises."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._gathered:
            return
        lines, self._gathered, self._gathered_bytes = self._gathered, [], 0
        if self.lost:
            lines.insert(0, self._loss())
        try:
            self._write(lines)
        except StorageFailed as failure:
            self._fail(failure)
            self._lose(len(lines) - bool(self.lost), str(failure))
        else:
            self.lost = 0

    def _loss(self) -> bytes:
        line = {"time": self._clock.wall_ms(), "broker": self._broker_id, "n": None, "kind": LOST}
        line |= {"cause": "", "lines": self.lost, "error": self._why_lost}
        return _encode(line).encode() + b"\n"

    def _write(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        file = self._file or self._open_file()
        if self._position and self._position + len(data) > FILE_BYTES:
            file = self._roll(file)
        if self._is_broken:  # half of what failed may lie behind the last whole line
            file.truncate(self._position)
        file.pwritev((data,), self._position)
        self._position += len(data)
        self._is_broken = False

    def _roll(self, full: File) -> File:
        """The next file, and only so many of the others."""
        full.close()
        self._file = None
        self._number += 1
        file = self._open_file()
        for number in self._numbers()[:-FILES_MAX]:
            self._storage.remove(f"{self._directory}/{file_name(number)}")
        return file

    def _fail(self, failure: StorageFailed) -> None:
        if not self._is_broken:
            logger.warning("the ledger in %s cannot be written: %s", self._directory, failure)
        self._is_broken = True

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        self._why_lost = why

    def close(self) -> None:
        """Write what was gathered, and give the file back. Never raises."""
        self.flush()
        self._is_open = False
        file, self._file = self._file, None
        if file is not None:
            with suppress(StorageFailed):
                file.close()
