"""The requests of clients: a value for each kind, decoders for the server, and encoders for the client.

A decoder gets the bytes after xid and opcode. It raises Malformed, and then nothing was changed. A null path is decoded
as None where the server's state has a rule for it, and is malformed elsewhere. Bytes after the request are ignored, as
in Apache ZooKeeper. An encoder takes the operations of `base.ports`, which have what a broker needs.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias, TypeVar, final

from minikafka.base import ports
from minikafka.base.ports import Set, Stat
from minikafka.zookeeper.messages import codes, jute
from minikafka.zookeeper.messages.jute import (
    ANYONE,
    ANYONE_BYTES,
    END_OF_PARTS,
    INT,
    NULL,
    PART,
    Acl,
    JuteReader,
    Malformed,
    buffer,
)

T = TypeVar("T")


@final
class CreateNode(NamedTuple):
    """Create a node. `kind`: CREATE, CREATE2, CREATE_CONTAINER or CREATE_TTL. `acl` None: its list is null."""

    kind: int
    path: str | None
    data: bytes | None
    acl: Acl | None
    flags: int


@final
class DeleteNode(NamedTuple):
    """Delete a node that has this version (-1: any)."""

    path: str | None
    version: int


@final
class SetData(NamedTuple):
    """Replace the data of a node that has this version (-1: any)."""

    path: str | None
    data: bytes | None
    version: int


@final
class SetAcl(NamedTuple):
    """Replace the access control list of a node that has this aversion (-1: any)."""

    path: str | None
    acl: Acl | None
    version: int


class CheckVersion(NamedTuple):
    """Require that a node has this version (-1: any); only in a multi."""

    path: str | None
    version: int


@final
class Reconfig(NamedTuple):
    """Change the members of an ensemble, which a single server refuses."""


Operation: TypeAlias = CreateNode | DeleteNode | SetData | SetAcl | CheckVersion | Reconfig


class OpResult(NamedTuple):
    """The outcome of one operation of a multi. `stat`: right after the operation; None after a deletion or check."""

    path: str
    stat: Stat | None


class Connect(NamedTuple):
    """The first request of a connection. `session_id` 0: open a new session.

    `has_read_only`: the request has the byte `readOnly`, so that the reply must have it too.
    """

    seen_zxid: int
    timeout_ms: int
    session_id: int
    password: bytes
    has_read_only: bool


class Exists(NamedTuple):
    """Read the Stat of a node. `watch`: also watch the node, even if it is missing."""

    path: str | None
    watch: bool


@final
class GetData(NamedTuple):
    """Read the data and the Stat of a node. `watch`: also watch the node."""

    path: str | None
    watch: bool


class GetChildren(NamedTuple):
    """Read the names of a node's children. `watch`: also watch the children."""

    path: str | None
    watch: bool


class GetChildren2(NamedTuple):
    """Read the names of a node's children, and the node's Stat. `watch`: also watch the children."""

    path: str | None
    watch: bool


class GetAcl(NamedTuple):
    """Read the access control list and the Stat of a node."""

    path: str | None


class Sync(NamedTuple):
    """Wait until the server has applied all writes so far; a single server has."""

    path: str | None


class GetEphemerals(NamedTuple):
    """Read the paths of the session's own ephemeral nodes. `path`: their prefix."""

    path: str | None


class CountChildren(NamedTuple):
    """Count all nodes below a node (getAllChildrenNumber)."""

    path: str | None


class WhoAmI(NamedTuple):
    """Read the identities of the connection."""


class SetWatches(NamedTuple):
    """The watches that a client had before it reconnected, and the last zxid that it has seen."""

    seen_zxid: int
    data: list[str]
    exists: list[str]
    children: list[str]
    persistent: list[str]
    recursive: list[str]


class AddWatch(NamedTuple):
    """Set a watch that stays. `mode`: 0 persistent, 1 recursive."""

    path: str | None
    mode: int


class CheckWatch(NamedTuple):
    """Ask whether the connection has a watch. `kind`: CHILD_WATCH to RECURSIVE_WATCH."""

    path: str | None
    kind: int


class RemoveWatch(NamedTuple):
    """Remove watches of the connection. `kind`: CHILD_WATCH to RECURSIVE_WATCH."""

    path: str | None
    kind: int


class Auth(NamedTuple):
    """Credentials of a connection, such as the scheme `digest` with `user:password`."""

    scheme: str | None
    credentials: bytes


@final
class MultiWrite(NamedTuple):
    """Carry out all of these operations or none."""

    operations: list[CreateNode | DeleteNode | SetData | CheckVersion]


@final
class MalformedMulti(NamedTuple):
    """A multi that cannot be decoded. As in Apache ZooKeeper, it fails and uses up a zxid [measured]."""


class MultiRead(NamedTuple):
    """Read many nodes. `reads`: pairs of opcode (GET_DATA or GET_CHILDREN) and path."""

    reads: list[tuple[int, str]]


ReadRequest: TypeAlias = (
    Exists
    | MultiRead
    | GetChildren
    | GetChildren2
    | GetAcl
    | Sync
    | GetEphemerals
    | CountChildren
    | WhoAmI
)
"""A read of any kind but GetData."""
WatchRequest: TypeAlias = SetWatches | AddWatch | CheckWatch | RemoveWatch
Request: TypeAlias = (
    CreateNode
    | DeleteNode
    | SetData
    | SetAcl
    | Reconfig
    | MultiWrite
    | MalformedMulti
    | GetData
    | ReadRequest
    | WatchRequest
)
"""A request of a session, but ping, closeSession and auth, which concern the connection itself."""


# ---- decoding, for the server


def decode_connect(data: bytes) -> Connect:
    """Decode the first frame of a connection."""
    reader = JuteReader(data)
    reader.int32()  # the version of the protocol, always 0
    seen_zxid = reader.int64()
    timeout_ms = reader.int32()
    session_id = reader.int64()
    password = reader.buffer() or b""
    return Connect(seen_zxid, timeout_ms, session_id, password, reader.position < len(data))


def decode_create(kind: int) -> Callable[[JuteReader], CreateNode]:
    """Return the decoder of create requests of this kind (CREATE, CREATE2, CREATE_CONTAINER)."""

    def decode(reader: JuteReader) -> CreateNode:
        return CreateNode(kind, reader.string(), reader.buffer(), reader.acl(), reader.int32())

    return decode


def decode_create_ttl(reader: JuteReader) -> CreateNode:
    """Decode a createTTL request; its time to live has no meaning here."""
    found = CreateNode(
        codes.CREATE_TTL, reader.string(), reader.buffer(), reader.acl(), reader.int32()
    )
    reader.int64()
    return found


def decode_delete(reader: JuteReader) -> DeleteNode:
    """Decode a delete request."""
    return DeleteNode(reader.string(), reader.int32())


def decode_set_data(reader: JuteReader) -> SetData:
    """Decode a setData request."""
    return SetData(reader.string(), reader.buffer(), reader.int32())


def decode_set_acl(reader: JuteReader) -> SetAcl:
    """Decode a setACL request."""
    return SetAcl(reader.string(), reader.acl(), reader.int32())


def _decode_check(reader: JuteReader) -> CheckVersion:
    return CheckVersion(reader.string(), reader.int32())


def decode_reconfig(reader: JuteReader) -> Reconfig:
    """Decode a reconfig request, which is refused whatever it asks for."""
    for _ in range(3):  # joining servers, leaving servers, new members
        reader.string()
    reader.int64()
    return Reconfig()


def decode_read(kind: Callable[[str | None, bool], T]) -> Callable[[JuteReader], T]:
    """Return the decoder of the reads of this class (Exists, GetData, GetChildren, GetChildren2)."""

    def decode(reader: JuteReader) -> T:
        return kind(reader.string(), reader.boolean())

    return decode


def decode_path(kind: Callable[[str | None], T]) -> Callable[[JuteReader], T]:
    """Return the decoder of the requests of this class that have only a path."""

    def decode(reader: JuteReader) -> T:
        return kind(reader.string())

    return decode


def decode_watch(kind: Callable[[str | None, int], T]) -> Callable[[JuteReader], T]:
    """Return the decoder of the requests of this class (AddWatch, CheckWatch, RemoveWatch)."""

    def decode(reader: JuteReader) -> T:
        return kind(reader.string(), reader.int32())

    return decode


def decode_who_am_i(_: JuteReader) -> WhoAmI:
    """Decode a request without fields."""
    return WhoAmI()


def decode_multi(reader: JuteReader) -> MultiWrite | MalformedMulti:
    """Decode a multi. Raises Malformed only for a create without an access control list [measured]."""
    operations: list[CreateNode | DeleteNode | SetData | CheckVersion] = []
    has_read = False
    while True:
        try:
            kind = reader.int32()
            is_end = reader.boolean()
            reader.int32()
            if is_end:
                # A null path is found after all operations have been decoded [measured].
                is_valid = not has_read and all(one.path is not None for one in operations)
                return MultiWrite(operations) if is_valid else MalformedMulti()
            operation = _MULTI[kind](reader)
        except (Malformed, KeyError):
            return MalformedMulti()
        if isinstance(operation, CreateNode):
            found = _create_in_multi(operation)
            if found is None:
                return MalformedMulti()
            operation = found
        if isinstance(operation, GetData | GetChildren):
            has_read = True
        else:
            operations.append(operation)
        if has_read and operations:
            return MalformedMulti()


def _create_in_multi(operation: CreateNode) -> CreateNode | None:
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


def decode_multi_read(reader: JuteReader) -> MultiRead:
    """Decode a multiRead. Its watches are ignored."""
    found: list[tuple[int, str]] = []
    data, position = reader.data, reader.position
    try:
        while True:
            kind, is_end, _ = PART.unpack_from(data, position)
            if is_end:
                return MultiRead(found)
            if kind not in (codes.GET_DATA, codes.GET_CHILDREN):
                raise Malformed(f"multiRead of the operation {kind}")
            start = position + PART.size + INT.size
            (size,) = INT.unpack_from(data, start - INT.size)
            position = start + size + 1  # behind the watch
            if size < 0 or position > len(data):
                raise Malformed(f"a path of {size} bytes in a multiRead")
            found.append((kind, data[start : start + size].decode(errors="replace")))
    except struct.error:
        raise Malformed("a multiRead has no end") from None


def decode_set_watches(reader: JuteReader) -> SetWatches:
    """Decode a setWatches request, which has one-shot watches only."""
    seen_zxid, data, exists = reader.int64(), _paths(reader), _paths(reader)
    return SetWatches(seen_zxid, data, exists, _paths(reader), [], [])


def decode_set_watches2(reader: JuteReader) -> SetWatches:
    """Decode a setWatches2 request."""
    one_shot = decode_set_watches(reader)
    return one_shot._replace(persistent=_paths(reader), recursive=_paths(reader))


def decode_auth(reader: JuteReader) -> Auth:
    """Decode the credentials of a connection."""
    reader.int32()  # a type that has no meaning
    return Auth(reader.string(), reader.buffer() or b"")


def decode_sasl(reader: JuteReader) -> bytes:
    """Return the token of a SASL request."""
    return reader.buffer() or b""


def _paths(reader: JuteReader) -> list[str]:
    if reader.data.startswith(NULL, reader.position):
        raise Malformed("a list of paths is null")
    return reader.items(lambda: _required(reader))


def _required(reader: JuteReader) -> str:
    found = reader.string()
    if found is None:
        raise Malformed("a path is null")
    return found


_MULTI: Final[
    dict[
        int,
        Callable[
            [JuteReader], CreateNode | DeleteNode | SetData | CheckVersion | GetData | GetChildren
        ],
    ]
] = {
    codes.CREATE: decode_create(codes.CREATE),
    codes.CREATE2: decode_create(codes.CREATE2),
    codes.CREATE_CONTAINER: decode_create(codes.CREATE_CONTAINER),
    codes.CREATE_TTL: decode_create_ttl,
    codes.DELETE: decode_delete,
    codes.SET_DATA: decode_set_data,
    codes.CHECK: _decode_check,
    codes.GET_DATA: decode_read(GetData),
    codes.GET_CHILDREN: decode_read(GetChildren),
}
"""The decoders of the operations of a multi. A multi with a read is decoded, and then counts as malformed."""


# ---- encoding, for the client

_HEADERS: Final = {
    opcode: PART.pack(opcode, False, -1)
    for opcode in (
        codes.DELETE,
        codes.GET_DATA,
        codes.SET_DATA,
        codes.GET_CHILDREN,
        codes.CHECK,
        codes.CREATE2,
    )
}
_NO_WATCH: Final = b"\0"


def encode_write(operation: ports.MultiOp, acl: Acl = ANYONE) -> bytes:
    """Return the opcode and the fields of a write that is not part of a multi. `acl`: the list of a new node."""
    opcode, fields = _encode_operation(operation, acl)
    return INT.pack(opcode) + fields


def encode_multi(operations: Iterable[ports.MultiOp], acls: Iterable[Acl] = ()) -> bytes:
    """Return the opcode and the operations of a multi.

    `acls`: for each operation the list of the node, if it creates one; empty: everybody may do everything.
    """
    lists = acls or itertools.repeat(ANYONE)
    return _encode_parts(codes.MULTI, map(_encode_operation, operations, lists))


def encode_multi_read(kind: int, paths: Sequence[str]) -> bytes:
    """Return the opcode and the reads of a multiRead. `kind`: GET_DATA or GET_CHILDREN."""
    reads = ((kind, buffer(path.encode()) + _NO_WATCH) for path in paths)
    return _encode_parts(codes.MULTI_READ, reads)


def _encode_operation(operation: ports.MultiOp, acl: Acl) -> tuple[int, bytes]:
    """Return the opcode and the encoded fields of an operation."""
    fields = buffer(operation.path.encode())
    if isinstance(operation, Set):
        return codes.SET_DATA, fields + buffer(operation.data) + INT.pack(operation.version)
    if isinstance(operation, ports.Create):
        flags = codes.EPHEMERAL * operation.ephemeral | codes.SEQUENTIAL * operation.sequential
        entries = ANYONE_BYTES if acl is ANYONE else jute.acl(acl)
        return codes.CREATE2, fields + buffer(operation.data) + entries + INT.pack(flags)
    kind = codes.CHECK if isinstance(operation, ports.Check) else codes.DELETE
    return kind, fields + INT.pack(operation.version)


def _encode_parts(opcode: int, operations: Iterable[tuple[int, bytes]]) -> bytes:
    """Return a request with several operations, which are pairs of opcode and encoded fields."""
    pieces = [INT.pack(opcode)]
    for kind, fields in operations:
        pieces += (_HEADERS[kind], fields)
    pieces.append(END_OF_PARTS)
    return b"".join(pieces)
