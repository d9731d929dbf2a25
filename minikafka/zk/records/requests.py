"""Decoding of the requests of clients: the bytes after xid and opcode → the operation or the fields.

Each function raises Malformed, and then nothing was changed. A null path is decoded as None where the state has a
rule for it, and is malformed elsewhere. Bytes after the record are ignored, as in Apache ZooKeeper.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from minikafka.zk.core import codes
from minikafka.zk.core.operations import (
    Check,
    Create,
    Delete,
    Reconfig,
    SetAcl,
    SetData,
)
from minikafka.zk.records import opcodes
from minikafka.zk.records.jute import INT, NULL, Malformed, Reader

_OPERATION: Final = struct.Struct("!i?i")
"""In front of each operation of a multi: opcode, whether this is the end, error."""


class Connect(NamedTuple):
    """The first request of a connection. `session_id` 0: open a new session.

    `has_read_only`: the request has the byte `readOnly`, so that the reply must have it too.
    """

    seen_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes
    has_read_only: bool


class Read(NamedTuple):
    """A read of one node. `watch`: also watch the node."""

    path: str | None
    watch: bool


class SetWatches(NamedTuple):
    """The watches that a client had before it reconnected, and the last zxid that it has seen."""

    seen_zxid: int
    data: list[str]
    exists: list[str]
    children: list[str]
    persistent: list[str]
    recursive: list[str]


class WatchRequest(NamedTuple):
    """A path with the mode (addWatch) or the type (checkWatches, removeWatches) of a watch."""

    path: str | None
    mode: int


class Auth(NamedTuple):
    """Credentials of a connection, such as the scheme `digest` with `user:password`."""

    scheme: str | None
    credentials: bytes


class MalformedMulti(NamedTuple):
    """A multi that cannot be decoded. As in Apache ZooKeeper, it fails and uses up a zxid [measured]."""


Multi: TypeAlias = list[Create | Delete | SetData | Check] | MalformedMulti


def connect(data: bytes) -> Connect:
    """Decode the first frame of a connection."""
    reader = Reader(data)
    reader.int32()  # the version of the protocol, always 0
    seen_zxid = reader.int64()
    timeout_ms = reader.int32()
    session_id = reader.int64()
    password = reader.buffer() or b""
    return Connect(seen_zxid, timeout_ms, session_id, password, reader.position < len(data))


def create(kind: int) -> Callable[[Reader], Create]:
    """Return the decoder of create requests of this kind (CREATE, CREATE2, CREATE_CONTAINER)."""

    def decode(reader: Reader) -> Create:
        return Create(kind, reader.string(), reader.buffer(), reader.acl(), reader.int32())

    return decode


def create_ttl(reader: Reader) -> Create:
    """Decode a createTTL request; its time to live has no meaning here."""
    found = Create(codes.CREATE_TTL, reader.string(), reader.buffer(), reader.acl(), reader.int32())
    reader.int64()
    return found


def delete(reader: Reader) -> Delete:
    """Decode a delete request."""
    return Delete(reader.string(), reader.int32())


def set_data(reader: Reader) -> SetData:
    """Decode a setData request."""
    return SetData(reader.string(), reader.buffer(), reader.int32())


def set_acl(reader: Reader) -> SetAcl:
    """Decode a setACL request."""
    return SetAcl(reader.string(), reader.acl(), reader.int32())


def _check(reader: Reader) -> Check:
    return Check(reader.string(), reader.int32())


def reconfig(reader: Reader) -> Reconfig:
    """Decode a reconfig request, which is refused whatever it asks for."""
    for _ in range(3):  # joining servers, leaving servers, new members
        reader.string()
    reader.int64()
    return Reconfig()


def read(reader: Reader) -> Read:
    """Decode an exists, getData, getChildren or getChildren2 request."""
    return Read(reader.string(), reader.boolean())


def path(reader: Reader) -> str | None:
    """Decode a request that consists of a path: getACL, sync, getEphemerals, getAllChildrenNumber."""
    return reader.string()


def nothing(_: Reader) -> None:
    """Decode a request without fields: ping, closeSession, whoAmI."""


def multi(reader: Reader) -> Multi:
    """Decode a multi. Raises Malformed only for a create without an access control list [measured]."""
    operations: list[Create | Delete | SetData | Check] = []
    has_read = False
    while True:
        try:
            kind = reader.int32()
            is_end = reader.boolean()
            reader.int32()
            if is_end:
                # A null path is found after all operations have been decoded [measured].
                is_valid = not has_read and all(one.path is not None for one in operations)
                return operations if is_valid else MalformedMulti()
            operation = _MULTI[kind](reader)
        except (Malformed, KeyError):
            return MalformedMulti()
        if isinstance(operation, Create):
            found = _create_in_multi(operation)
            if found is None:
                return MalformedMulti()
            operation = found
        if isinstance(operation, Read):
            has_read = True
        else:
            operations.append(operation)
        if has_read and operations:
            return MalformedMulti()


def _create_in_multi(operation: Create) -> Create | None:
    """Return the create with the kind that its flags select in a multi; None if the flags are malformed [measured]."""
    flags = operation.flags
    if operation.kind == codes.CREATE_TTL:
        if flags in (codes.TTL_FLAG, codes.FLAGS_MAX):
            return operation
        plain = codes.CREATE_CONTAINER if flags == codes.CONTAINER_FLAG else codes.CREATE
        return operation._replace(kind=plain)
    if not 0 <= flags <= codes.FLAGS_MAX:
        return None
    if operation.acl is None:
        raise Malformed("a create of a multi has no access control list")
    if flags >= codes.TTL_FLAG:
        return None
    if flags == codes.CONTAINER_FLAG:
        return operation._replace(kind=codes.CREATE_CONTAINER)
    return operation


def multi_read(reader: Reader) -> list[tuple[int, str]]:
    """Decode a multiRead into pairs of opcode (GET_DATA or GET_CHILDREN) and path. Its watches are ignored."""
    found: list[tuple[int, str]] = []
    data, position = reader.data, reader.position
    try:
        while True:
            kind, is_end, _ = _OPERATION.unpack_from(data, position)
            if is_end:
                return found
            if kind not in (opcodes.GET_DATA, opcodes.GET_CHILDREN):
                raise Malformed(f"multiRead of the operation {kind}")
            start = position + _OPERATION.size + INT.size
            (size,) = INT.unpack_from(data, start - INT.size)
            position = start + size + 1  # behind the watch
            if size < 0 or position > len(data):
                raise Malformed(f"a path of {size} bytes in a multiRead")
            found.append((kind, data[start : start + size].decode(errors="replace")))
    except struct.error:
        raise Malformed("a multiRead has no end") from None


def set_watches(reader: Reader) -> SetWatches:
    """Decode a setWatches request, which has one-shot watches only."""
    seen_zxid, data, exists = reader.int64(), _paths(reader), _paths(reader)
    return SetWatches(seen_zxid, data, exists, _paths(reader), [], [])


def set_watches2(reader: Reader) -> SetWatches:
    """Decode a setWatches2 request."""
    one_shot = set_watches(reader)
    return one_shot._replace(persistent=_paths(reader), recursive=_paths(reader))


def watch(reader: Reader) -> WatchRequest:
    """Decode an addWatch, checkWatches or removeWatches request."""
    return WatchRequest(reader.string(), reader.int32())


def auth(reader: Reader) -> Auth:
    """Decode the credentials of a connection."""
    reader.int32()  # a type that has no meaning
    return Auth(reader.string(), reader.buffer() or b"")


def _paths(reader: Reader) -> list[str]:
    if reader.data.startswith(NULL, reader.position):
        raise Malformed("a list of paths is null")
    return reader.items(lambda: _required(reader))


def _required(reader: Reader) -> str:
    found = reader.string()
    if found is None:
        raise Malformed("a path is null")
    return found


_MULTI: Final[dict[int, Callable[[Reader], Create | Delete | SetData | Check | Read]]] = {
    codes.CREATE: create(codes.CREATE),
    codes.CREATE2: create(codes.CREATE2),
    codes.CREATE_CONTAINER: create(codes.CREATE_CONTAINER),
    codes.CREATE_TTL: create_ttl,
    opcodes.DELETE: delete,
    opcodes.SET_DATA: set_data,
    opcodes.CHECK: _check,
    opcodes.GET_DATA: read,
    opcodes.GET_CHILDREN: read,
}
"""The decoders of the operations of a multi. A multi with a read is decoded, and then counts as malformed."""
