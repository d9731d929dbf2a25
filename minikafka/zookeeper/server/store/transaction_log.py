"""Records of ZooKeeper's transaction log, in the bytes of Apache ZooKeeper.

A record of a log file: adler32 (8 bytes), length, header, transaction, and the byte `B`. Apache ZooKeeper adds a
digest of the tree behind the transaction, which is not read. In its place, the first record of each write here has a
mark: up to which byte the file was on the disk before. Apache ZooKeeper skips it as a digest of an unknown version.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final
from zlib import adler32

from minikafka.zookeeper.messages import codes
from minikafka.zookeeper.messages.jute import (
    INT,
    Acl,
    JuteReader,
    Malformed,
    acl,
    buffer,
    string,
    strings,
)
from minikafka.zookeeper.server.core.changes import (
    AclSet,
    Change,
    Checked,
    Created,
    DataSet,
    Deleted,
    Failed,
    LoggedTransaction,
    Multi,
    SessionClosed,
    SessionOpened,
)

HEADER: Final = struct.Struct("!qiqqi")
"""Session, cxid, zxid, time and kind: the start of each transaction."""
PREFIX: Final = struct.Struct("!qi")
"""Checksum and length, in front of the header."""
END: Final = b"B"
_MARK: Final = struct.Struct("!iq")
"""Version of a digest, and number of durable bytes."""
_MARK_VERSION: Final = 0x6D6B
_ZXID_AT: Final = 12
_ZXID: Final = struct.Struct("!q")

_CLOSED_BYTES_MAX: Final = 512 << 10
"""Longer lists of ephemeral nodes are not logged: Apache ZooKeeper refuses to read records above 1 MiB.

Replay deletes all ephemeral nodes of a closed session, also those that the record does not name.
"""


# ---- encoding


def encode(transaction: LoggedTransaction, durable: int = 0) -> bytes:
    """Return the whole record of a transaction. `durable`: for a mark, bytes of the log that are on the disk."""
    session_id, cxid, zxid, time_ms, change = transaction
    if type(change) is DataSet:  # the most frequent one
        kind, content = codes.SET_DATA, _data_set(change)
    else:
        kind, content = _encoded(change)
    record = HEADER.pack(session_id, cxid, zxid, time_ms, kind) + content
    if durable:
        record += _MARK.pack(_MARK_VERSION, durable)
    return PREFIX.pack(adler32(record), len(record)) + record + END


def _encoded(change: Change) -> tuple[int, bytes]:
    """Return the kind of a change, and its bytes."""
    if type(change) is Created:
        return change.kind, _created(change)
    if type(change) is Deleted:
        return codes.DELETE_CONTAINER if change.is_container else codes.DELETE, string(change.path)
    if type(change) is DataSet:
        return codes.SET_DATA, _data_set(change)
    if type(change) is AclSet:
        return codes.SET_ACL, string(change.path) + acl(change.acl) + INT.pack(change.version)
    if type(change) is Checked:
        return codes.CHECK, string(change.path) + INT.pack(change.version)
    if type(change) is Failed:
        return codes.ERROR, INT.pack(change.code)
    if type(change) is Multi:
        return codes.MULTI, _multi(change)
    if type(change) is SessionOpened:
        return codes.OPEN_SESSION, INT.pack(change.timeout_ms)
    assert type(change) is SessionClosed
    return codes.CLOSE_SESSION, _closed(change)


def _data_set(change: DataSet) -> bytes:
    return string(change.path) + buffer(change.data) + INT.pack(change.version)


def _created(change: Created) -> bytes:
    content = string(change.path) + buffer(change.data) + acl(change.acl)
    if change.kind != codes.CREATE_CONTAINER:
        content += b"\1" if change.is_ephemeral else b"\0"
    return content + INT.pack(change.created)


def _multi(change: Multi) -> bytes:
    parts = [INT.pack(len(change.changes))]
    for part in change.changes:
        kind, content = _encoded(part)
        parts.append(INT.pack(kind) + INT.pack(len(content)) + content)
    return b"".join(parts)


def _closed(change: SessionClosed) -> bytes:
    is_short = sum(map(len, change.paths)) <= _CLOSED_BYTES_MAX
    content = strings(change.paths if is_short else ())
    return content if len(content) <= _CLOSED_BYTES_MAX else strings(())


# ---- decoding


def zxid_of(record: bytes) -> int:
    """Return the zxid of a record, which begins with its header."""
    return _ZXID.unpack_from(record, _ZXID_AT)[0]  # type: ignore[no-any-return]


def decode(record: bytes) -> LoggedTransaction:
    """Return the transaction of a record, which begins with its header. Raises Malformed."""
    try:
        session_id, cxid, zxid, time_ms, kind = HEADER.unpack_from(record)
    except struct.error:
        raise Malformed(f"a transaction of {len(record)} bytes has no complete header") from None
    return LoggedTransaction(
        session_id, cxid, zxid, time_ms, _change(kind, JuteReader(record, HEADER.size))
    )


def durable_before(record: bytes) -> int:
    """Return how many bytes of the log were on the disk when this record was written; 0 if it has no mark."""
    reader = JuteReader(record, HEADER.size)
    try:
        _change(HEADER.unpack_from(record)[-1], reader)
        version, durable = _MARK.unpack(record[reader.position :])
    except (Malformed, struct.error):
        return 0
    return durable if version == _MARK_VERSION else 0


def _change(kind: int, reader: JuteReader) -> Change:
    if kind == codes.CREATE or kind == codes.CREATE2:
        return _read_created(kind, reader)
    read = _READERS.get(kind)
    if read is None:
        raise Malformed(f"a transaction of the unknown kind {kind}")
    return read(reader)


def _path(reader: JuteReader) -> str:
    path = reader.string()
    if path is None:
        raise Malformed("a transaction without a path")
    return path


def _acl(reader: JuteReader) -> Acl:
    return reader.acl() or ()


def _read_created(kind: int, reader: JuteReader) -> Created:
    path, data, entries = _path(reader), reader.buffer(), _acl(reader)
    is_ephemeral = reader.boolean()
    # ZooKeeper before 3.4 did not log the parent's counter.
    created = reader.int32() if reader.position < len(reader.data) else -1
    return Created(kind, path, data, entries, is_ephemeral, created)


def _read_container(reader: JuteReader) -> Created:
    path, data, entries = _path(reader), reader.buffer(), _acl(reader)
    return Created(codes.CREATE_CONTAINER, path, data, entries, False, reader.int32())


def _read_ttl(reader: JuteReader) -> Created:
    """Read a node with a time to live, which follows and is not read: the store refuses such nodes."""
    path, data, entries = _path(reader), reader.buffer(), _acl(reader)
    return Created(codes.CREATE_TTL, path, data, entries, False, reader.int32())


def _read_multi(reader: JuteReader) -> Multi:
    return Multi(tuple(reader.items(lambda: _read_part(reader))))


def _read_part(reader: JuteReader) -> Created | Deleted | DataSet | AclSet | Checked | Failed:
    kind = reader.int32()
    part = _change(kind, JuteReader(reader.buffer() or b""))
    if isinstance(part, Multi | SessionOpened | SessionClosed):
        raise Malformed(f"a multi with a part of the kind {kind}")
    return part


def _read_closed(reader: JuteReader) -> SessionClosed:
    """Read the paths, which ZooKeeper before 3.6 did not log: a digest may be in their place."""
    try:
        paths = reader.items(reader.string)
    except Malformed:
        return SessionClosed(())
    return SessionClosed(tuple(path for path in paths if path))


_READERS: Final[dict[int, Callable[[JuteReader], Change]]] = {
    codes.CREATE_CONTAINER: _read_container,
    codes.CREATE_TTL: _read_ttl,
    codes.DELETE: lambda reader: Deleted(_path(reader)),
    codes.DELETE_CONTAINER: lambda reader: Deleted(_path(reader), is_container=True),
    codes.SET_DATA: lambda reader: DataSet(_path(reader), reader.buffer(), reader.int32()),
    codes.RECONFIG: lambda reader: DataSet(_path(reader), reader.buffer(), reader.int32()),
    codes.SET_ACL: lambda reader: AclSet(_path(reader), _acl(reader), reader.int32()),
    codes.CHECK: lambda reader: Checked(_path(reader), reader.int32()),
    codes.ERROR: lambda reader: Failed(reader.int32()),
    codes.MULTI: _read_multi,
    codes.OPEN_SESSION: lambda reader: SessionOpened(reader.int32()),
    codes.CLOSE_SESSION: _read_closed,
}
