"""The files of a data directory: their names, and the records of one log file.

DIRECTORY/version-2 has `snapshot.ZXID`, named after the last transaction in it, and `log.ZXID`, named after its
first transaction, as in Apache ZooKeeper.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from minikafka.base.errors import MinikafkaError
from minikafka.base.ports import Storage
from minikafka.zookeeper.messages.jute import Malformed
from minikafka.zookeeper.server.store import snapshots, transaction_log


class CorruptData(MinikafkaError):
    """The files lack durable changes, or have changes that never happened. The server must not start with them."""


class UnsupportedData(MinikafkaError):
    """The data needs a feature of Apache ZooKeeper that this server does not have."""


VERSION: Final = "version-2"
LOCK: Final = ".lock"
TEMPORARY: Final = ".tmp"
_NAME: Final = re.compile(r"(log|snapshot)\.([0-9a-f]{1,16})(\.gz|\.snappy)?")

BATCH_BYTES_MAX: Final = 4 << 20
"""Bytes that are written to a log without an fsync between them: so much can be damaged by a crash."""
LOG_HEADER: Final = struct.pack("!4si8s", b"ZKLG", 2, b"minikafk")
"""Magic, version, and the id of the database, which has no meaning for Apache ZooKeeper: there it is 0.

A log with this id has every zxid, and `durable-end` is written before its transactions are acknowledged.
"""
_LOG_HEADER_CHECKED: Final = LOG_HEADER[:8]
_RECORD_BYTES_MIN: Final = transaction_log.HEADER.size
_AROUND_RECORD: Final = transaction_log.PREFIX.size + len(transaction_log.END)
_RECORD_START: Final = re.compile(
    rb"(?=\0{4}.{4}(?:\0[\1-\xff]..|\0\0[\1-\xff].|\0{3}[\x20-\xff]))", re.DOTALL
)
"""What may be the checksum and the length of a record, at any byte."""
_GZIP: Final = 16 + zlib.MAX_WBITS


class StoreFile(NamedTuple):
    """A log or a snapshot. `zxid`: the zxid in the file's name."""

    zxid: int
    path: str

    @property
    def name(self) -> str:
        """The name without the directory."""
        return self.path.rpartition("/")[2]


class Listing(NamedTuple):
    """The logs and snapshots of a directory, oldest first."""

    logs: list[StoreFile]
    snapshots: list[StoreFile]


def listing(storage: Storage, folder: str) -> Listing:
    """Return the logs and snapshots in a folder `version-2`; nothing if there is no such folder."""
    found: dict[str, list[StoreFile]] = {"log": [], "snapshot": []}
    for name in storage.names(folder) if storage.is_directory(folder) else ():
        if match := _NAME.fullmatch(name):
            found[match[1]].append(StoreFile(int(match[2], 16), f"{folder}/{name}"))
    return Listing(sorted(found["log"]), sorted(found["snapshot"]))


def remove_unfinished(storage: Storage, folder: str) -> None:
    """Remove snapshots that were never completed, because a process was killed or the disk was full."""
    for name in storage.names(folder):
        if name.endswith(TEMPORARY):
            storage.remove(f"{folder}/{name}")


def read_snapshot(storage: Storage, entry: StoreFile) -> snapshots.Snapshot:
    """Return the content of a snapshot. Raises Malformed, or UnsupportedData for one that was compressed by Snappy."""
    if entry.path.endswith(".snappy"):
        raise UnsupportedData(
            f"{entry.path} is compressed with Snappy, which cannot be read here; remove snapshot.compression.method"
            " from Apache ZooKeeper's settings and restart it, so that it writes an uncompressed snapshot"
        )
    content = storage.read(entry.path)
    if entry.path.endswith(".gz"):
        try:
            content = zlib.decompress(content, _GZIP)
        except zlib.error as error:
            raise Malformed(f"gzip: {error}") from None
    found = snapshots.decode(content)
    if found.zxid not in (snapshots.UNKNOWN_ZXID, entry.zxid):
        raise Malformed(f"it has the state after {found.zxid:#x}, so that its name is wrong")
    return found


class LogRecords:
    """An iterator over the records of one log file. It ends before the first incomplete or changed record.

    `position`: the end of the last record that was read; 0 if not even the file's header is right. `is_own`: a server
    of this kind has written the file.
    """

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.is_own = content.startswith(LOG_HEADER)
        has_header = len(content) >= len(LOG_HEADER) and content.startswith(_LOG_HEADER_CHECKED)
        self.position = len(LOG_HEADER) if has_header else 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the records, each beginning with its header."""
        while self.position > 0 and (record := self._record_at(self.position)) is not None:
            self.position += _AROUND_RECORD + len(record)
            yield record

    def _record_at(self, position: int) -> bytes | None:
        """Return the record at a position; None if it is incomplete or changed."""
        content, prefix = self.content, transaction_log.PREFIX
        if position + prefix.size > len(content):
            return None
        checksum, size = prefix.unpack_from(content, position)
        start = position + prefix.size
        end = start + size
        if size < _RECORD_BYTES_MIN or content[end : end + 1] != transaction_log.END:
            return None
        record = content[start:end]
        return record if zlib.adler32(record) == checksum else None

    def was_durable(self) -> bool:
        """Return True if a record behind the last one that was read says that the bytes there were on the disk.

        Then no crash has damaged them: a later record was written only after an fsync of them.
        """
        places = _RECORD_START.finditer(self.content, self.position + 1)
        records = (self._record_at(place.start()) for place in places)
        return any(
            record is not None and transaction_log.durable_before(record) > self.position
            for record in records
        )

    def unread(self) -> bytes:
        """Return the bytes behind the last record, without the zeros at the end of the file."""
        return self.content[self.position :].rstrip(b"\0")
