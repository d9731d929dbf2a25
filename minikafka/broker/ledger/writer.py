"""The ledger of one broker on disk: JSON lines in rotating files.

The ledger is stored in `LOG_DIR-ledger/`, next to the first log directory. So the ledger survives the failure of
a log directory, and can record that failure. At most `FILES_MAX` files `ledger-NNNNNN.jsonl` of `FILE_BYTES` are
kept. Lines are written once per iteration of the event loop, without fsync. A line of a kind in `WRITTEN_THROUGH`
is written immediately, after all earlier lines. So a killed process loses at most the lines of the loop's last
iteration.

Invariants: `record` never raises. Lines that could not be written are counted, and a `lost` line contains their
number. A file consists of whole lines. After a crash, the next start removes an unfinished last line.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from minikafka.base.errors import StorageFailed
from minikafka.base.model import BrokerId
from minikafka.base.names import parse_json
from minikafka.base.ports import Clock, File, Storage, Timer
from minikafka.broker.ledger.forms import misfit
from minikafka.broker.ledger.record import LOST, WRITTEN_THROUGH

logger = logging.getLogger(__name__)

FILE_BYTES: Final = 16 * 1024 * 1024
FILES_MAX: Final = 8
PREFIX: Final = "ledger-"
SUFFIX: Final = ".jsonl"
_DIGITS_MAX: Final = 19
_PENDING_BYTES_MAX: Final = 1024 * 1024
_TAIL_BYTES: Final = 1024 * 1024
"""Number of bytes read from the end of a file to find the last line. No line is longer."""

_encode: Final = json.JSONEncoder(separators=(",", ":"), default=str).encode


def directory_of(log_dir: str) -> str:
    """Return the ledger directory of a broker whose first log directory is `log_dir`."""
    return f"{log_dir.rstrip('/')}-ledger"


def file_name(number: int) -> str:
    """Return the name of the ledger file with this number."""
    return f"{PREFIX}{number:06d}{SUFFIX}"


def number_of(name: str) -> int | None:
    """Return the number in the name of a ledger file; None if `name` is not the name of a ledger file."""
    digits = name.removeprefix(PREFIX).removesuffix(SUFFIX)
    if not (digits.isascii() and digits.isdigit() and len(digits) < _DIGITS_MAX):
        return None
    return int(digits) if name == file_name(int(digits)) else None


class LedgerWriter:
    """The Ledger port, implemented with files in `directory`."""

    def __init__(self, storage: Storage, directory: str, broker_id: BrokerId, clock: Clock) -> None:
        self.lost = 0
        """Number of unwritten lines that no `lost` line has reported yet."""
        self.storage = storage
        self.directory = directory
        self._broker_id = broker_id
        self._clock = clock
        self._n = 0
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._timer: Timer | None = None
        self._file: File | None = None
        self._number = 0
        self._position = 0
        self._is_broken = False
        self._is_open = False
        self._loss_reason = ""

    def record(self, kind: str, cause: str, fields: Mapping[str, Any]) -> None:
        """Add a line (see `Ledger.record`). Before `open` and after `close`, lines are discarded."""
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
        if wrong := misfit(kind, fields, checked=1):
            self._count_lost(1, f"a line of kind {kind} needs another field {wrong}")
            return
        try:
            data = _encode(line | dict(fields)).encode() + b"\n"
        except (TypeError, ValueError) as error:
            self._count_lost(1, f"a line of kind {kind} cannot be encoded: {error}")
            return
        self._pending.append(data)
        self._pending_bytes += len(data)
        if kind in WRITTEN_THROUGH or self._pending_bytes > _PENDING_BYTES_MAX:
            self.flush()
        elif self._timer is None:
            self._timer = self._clock.call_later(0, self.flush)

    def open(self) -> None:
        """Open the newest file for appending after its last whole line. Never raises."""
        self._is_open = True
        try:
            self._open_file()
        except StorageFailed as failure:
            self._fail(failure)

    def _open_file(self) -> File:
        """Open the ledger file with the number `_number` for appending, and return the file.

        The first call after the start opens the newest file.
        """
        self.storage.make_directories(self.directory, sync=False)
        self._number = self._number or max(self._numbers(), default=1)
        path = f"{self.directory}/{file_name(self._number)}"
        file = self.storage.open(path, create=True)
        self._continue_after(file)
        self._file = file
        return file

    def _numbers(self) -> list[int]:
        found = map(number_of, self.storage.names(self.directory))
        return sorted(number for number in found if number is not None)

    def _continue_after(self, file: File) -> None:
        """Remove an unfinished last line. Continue the numbering of lines after the last whole line."""
        size = file.size()
        start = max(0, size - _TAIL_BYTES)
        tail = file.pread(size - start, start)
        end = tail.rfind(b"\n") + 1
        self._position = start + end
        if self._position < size:
            file.truncate(self._position)
        with suppress(ValueError, KeyError, TypeError, IndexError):
            last = parse_json(tail[:end].splitlines()[-1])["n"]
            self._n = max(self._n, last if type(last) is int else 0)

    def flush(self) -> None:
        """Write the pending lines. Never raises."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._pending:
            return
        lines, self._pending, self._pending_bytes = self._pending, [], 0
        if self.lost:
            lines.insert(0, self._lost_line())
        try:
            self._write(lines)
        except StorageFailed as failure:
            self._fail(failure)
            self._count_lost(len(lines) - bool(self.lost), str(failure))
        else:
            self.lost = 0

    def _lost_line(self) -> bytes:
        line = {"time": self._clock.wall_ms(), "broker": self._broker_id, "n": None, "kind": LOST}
        line |= {"cause": "", "lines": self.lost, "error": self._loss_reason}
        return _encode(line).encode() + b"\n"

    def _write(self, lines: list[bytes]) -> None:
        data = b"".join(lines)
        file = self._file or self._open_file()
        if self._position and self._position + len(data) > FILE_BYTES:
            file = self._roll(file)
        if self._is_broken:  # a failed write may have left bytes after the last whole line
            file.truncate(self._position)
        file.pwritev((data,), self._position)
        self._position += len(data)
        self._is_broken = False

    def _roll(self, full: File) -> File:
        """Close the full file, open the next file, and delete the oldest files beyond FILES_MAX."""
        full.close()
        self._file = None
        self._number += 1
        file = self._open_file()
        for number in self._numbers()[:-FILES_MAX]:
            self.storage.remove(f"{self.directory}/{file_name(number)}")
        return file

    def _fail(self, failure: StorageFailed) -> None:
        if not self._is_broken:
            logger.warning("the ledger in %s cannot be written: %s", self.directory, failure)
        self._is_broken = True

    def _count_lost(self, count: int, reason: str) -> None:
        self.lost += count
        self._loss_reason = reason

    def close(self) -> None:
        """Write the pending lines and close the file. Never raises."""
        self.flush()
        self._is_open = False
        file, self._file = self._file, None
        if file is not None:
            with suppress(StorageFailed):
                file.close()
