"""Connections under TLS: OpenSSL, through Python's `ssl`, between the socket and the handler.

Bytes from the socket are decrypted directly into the handler's buffer. Bytes that are sent are encrypted slice by
slice, so that no record is copied before its encryption. An accepted connection has no TLS state before its first
bytes, and at most `PLACES` connections of a listener shake hands at once; the others are not read. A new connection
that needs a place takes the place of one whose client has been silent for `_STALLED_MS`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, cast

from minikafka.base.encryption import Expiry, Tls
from minikafka.base.errors import ConfigError
from minikafka.base.ports import Buffer, Clock, StreamHandler
from minikafka.runtime.connection import SocketConnection, feed

if TYPE_CHECKING:  # a ZooKeeper server does not load the configuration of brokers, 2 MB
    from minikafka.base.config.security import SecurityKeys

logger = logging.getLogger(__name__)

PLACES: Final = 256
"""Maximum number of accepted connections of one listener that shake hands at the same time."""
_STALLED_MS: Final = 250
_HEADER_BYTES: Final = 5
"""Size of the header of a TLS record. A client hello begins with `_HANDSHAKE`."""
_HANDSHAKE: Final = b"\x16\x03"
_PIECE: Final = 64 << 10
"""Most bytes that are read or encrypted at once. OpenSSL's two queues of a connection never shrink below this."""
_LEAST: Final = 16 << 10
"""Bytes that are read at once for a handler with a smaller buffer, and during the handshake."""
_SMALL: Final = 2 << 10
"""Slices below this size are joined before they are encrypted: a TLS record costs 22 bytes and about 2 µs."""
REFRESH_MS: Final = 5_000
"""Time between two looks at the files of keys and certificates."""
_TURNS: Final = 3
"""Times that each side continues a handshake in memory. TLS 1.2 needs three."""
_NONE: Final = ssl.MemoryBIO()
"""Stands for the queues of a connection without TLS state. Nothing is ever in it."""
_received: Final = memoryview(bytearray(_PIECE))
"""The receive buffer of all connections: it is empty again when `buffer_updated` returns."""


class TlsConnection(SocketConnection):
    """One connection under TLS. The event loop uses it as a protocol, the handler as a Link."""

    def __init__(self, handler: StreamHandler, after_read: Callable[[], None] | None) -> None:
        super().__init__(handler, None)
        self._after = after_read
        self._tls: ssl.SSLObject | None = None
        self._incoming = self._outgoing = _NONE
        self._is_secure = False
        self._has_finished = False
        self._is_paused = False
        self._is_delivering = False

    def _bind(self, handler: StreamHandler) -> None:
        self.resume_writing = handler.drained  # type: ignore[method-assign]

    def begin(self, context: ssl.SSLContext, *, server: bool, host: str | None = None) -> None:
        """Create the TLS state."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server, server_hostname=host
        )

    def get_buffer(self, hint: int) -> Buffer:
        """Return the receive buffer of all connections, or as much of it as the handler's own buffer can take.

        What the handler does not take waits in OpenSSL's queue.
        """
        most = len(self.handler.get_buffer(hint)) if self._is_secure else 0
        return _received[: max(_LEAST, most)]

    def buffer_updated(self, count: int) -> None:
        """Decrypt the received bytes and pass them to the handler, or continue the handshake with them."""
        self._incoming.write(_received[:count])
        if self._is_secure or self.shake():
            self._deliver()
        if self._after is not None:
            self._after()

    def shake(self) -> bool:
        """Continue the handshake; return True when it is complete. An error aborts the connection."""
        assert self._tls is not None
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return False
        except ssl.SSLError as error:
            self._flush()  # the alert that tells the other side why
            self.failed(error)
            return False
        self._is_secure = True
        self._flush()
        self.secured()
        return True

    def secured(self) -> None:
        """Called once, when the handshake is complete."""

    def failed(self, error: ssl.SSLError) -> None:
        """End the connection, because the handshake failed or the other side sent something else than TLS."""
        self._error = error.with_traceback(None)
        super().abort()

    def _deliver(self) -> None:
        """Pass decrypted bytes to the handler until none are left, or until the handler stops reading."""
        if self._is_delivering:
            return
        self._is_delivering = True
        try:
            while self._has_more():
                count = self._decrypt(memoryview(self.handler.get_buffer(-1)))
                if count:
                    self.handler.buffer_updated(count)
                if self._has_finished:
                    self.close()
                elif not count:
                    break
        except ssl.SSLError as error:
            self.failed(error)
        finally:
            self._is_delivering = False

    def _has_more(self) -> bool:
        if not self._open or self._is_paused:
            return False
        assert self._tls is not None
        return bool(self._incoming.pending or self._tls.pending())

    def _decrypt(self, buffer: memoryview) -> int:
        """Fill the buffer with decrypted bytes; return their number.

        Set `_has_finished` when the other side has said that nothing follows.
        """
        assert self._tls is not None
        read, incoming, count, size = self._tls.read, self._incoming, 0, len(buffer)
        try:
            while count < size and (incoming.pending or self._tls.pending()):
                taken = cast("int", read(size - count, buffer[count:]))
                if not taken:
                    self._has_finished = True
                    break
                count += taken
        except ssl.SSLWantReadError:
            pass
        if self._outgoing.pending:  # for example the answer to a change of keys
            self._flush()
        return count

    def send(self, slices: Sequence[Buffer]) -> None:
        """Encrypt the slices, and write them to the socket, or queue them if earlier bytes are queued."""
        if not self._open:
            return
        assert self._tls is not None
        write, pieces, size = self._tls.write, [], 0
        for data in _records(slices):
            for start in range(0, len(data), _PIECE):
                size += _write_all(
                    write, data if len(data) <= _PIECE else data[start : start + _PIECE]
                )
                if size >= _PIECE:
                    pieces.append(self._outgoing.read())
                    size = 0
        if size:
            pieces.append(self._outgoing.read())
        super().send(pieces)

    def _flush(self) -> None:
        """Send the bytes that the handshake or an alert has produced."""
        if self._outgoing.pending:
            super().send((self._outgoing.read(),))

    def pause_reading(self) -> None:
        self._is_paused = True
        super().pause_reading()

    def resume_reading(self) -> None:
        self._is_paused = False
        super().resume_reading()
        if self._is_secure and self._has_more():
            asyncio.get_running_loop().call_soon(self._deliver)

    def hand_over(self, handler: StreamHandler, received: bytes = b"") -> None:
        self.handler = handler
        self._bind(handler)
        self._transport.set_protocol(self)  # the event loop keeps a reference to `resume_writing`
        handler.connected(self)
        feed(handler, received)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the TLS state at once: it takes 42 KB, and connection and handler refer to each other."""
        super().connection_lost(exc)
        self._tls = None
        self._incoming = self._outgoing = _NONE

    def peer_certificate(self) -> bytes | None:
        """Return the certificate of the other side, in DER; None if it has sent none."""
        return None if self._tls is None else self._tls.getpeercert(binary_form=True)

    def close(self) -> None:
        """Tell the other side that nothing follows, send all queued bytes, and close the connection."""
        if self._open and self._is_secure:
            assert self._tls is not None
            with suppress(ssl.SSLError):  # the other side has not said the same yet
                self._tls.unwrap()
            self._flush()
        super().close()


Load: TypeAlias = Callable[[], ssl.SSLContext]
"""A function that returns a new context, and raises ConfigError."""
FindExpiries: TypeAlias = Callable[[], Sequence[Expiry]]
"""A function that returns when certificates expire, and raises ConfigError."""


class Replaceable(Protocol):
    """What the next keys are compared with (`runtime/tls_changes.py`)."""

    def check_next(self, following: Any) -> None:
        """Raise ConfigError unless `following` may take the place of this."""


class Source(NamedTuple):
    """How to make a context, the files that this reads, and how to find when their certificates expire.

    `read` returns what the next keys are compared with, and raises ConfigError.
    """

    load: Load
    files: Sequence[str]
    find_expiries: FindExpiries
    read: Callable[[], Replaceable | None]


class RenewableTls:
    """How one side of connections encrypts. New connections use the current `context`; old ones keep theirs.

    `source_of(keys)` returns the source for other keys of Kafka; None if the keys of this side never change.
    """

    def __init__(
        self,
        load: Load,
        files: Sequence[str] = (),
        *,
        find_expiries: FindExpiries = tuple,
        read: Callable[[], Replaceable | None] = lambda: None,
        source_of: Callable[[SecurityKeys], Source] | None = None,
    ) -> None:
        self._load = load
        self._find_expiries = find_expiries
        self._read = read
        self._files = files
        self._source_of = source_of
        self._stamps = self._stamp()
        self.context = load()
        self.expiries = find_expiries()
        self._in_use = read()

    def check(self, keys: SecurityKeys) -> None:
        """Raise ConfigError unless these keys can be used, and may take the place of the current ones."""
        assert self._source_of is not None
        source = self._source_of(keys)
        source.load()
        self._check_next(source.read())

    def _check_next(self, following: Replaceable | None) -> None:
        if self._in_use is not None:
            self._in_use.check_next(following)

    def use(self, keys: SecurityKeys) -> None:
        """Make a context of these keys. Raises ConfigError, and keeps the context."""
        assert self._source_of is not None
        source = self._source_of(keys)
        self.context, self._in_use = source.load(), source.read()
        self._load, self._files, self._find_expiries, self._read = source
        self._stamps = self._stamp()
        self.expiries = source.find_expiries()

    def refresh(self) -> bool:
        """Load the files again if one of them has changed; return True if the context is a new one.

        Raises ConfigError, once for each change, and keeps the context, also if the files may not take the place of the
        current ones.
        """
        stamps = self._stamp()
        if stamps == self._stamps:
            return False
        self._stamps = stamps
        context, following = self._load(), self._read()
        self._check_next(following)
        self.context, self._in_use = context, following
        self.expiries = self._find_expiries()
        return True

    def _stamp(self) -> list[tuple[int, int, int]]:
        """Return what changes when a file is written or replaced; nothing for a file that is missing."""
        found = []
        for path in self._files:
            with suppress(OSError):
                status = os.stat(path)
                found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        return found


async def keep_fresh(used: Sequence[Tls], clock: Clock) -> None:
    """Load keys and certificates again when their files change, until the task is cancelled."""
    while True:
        await clock.sleep(REFRESH_MS)
        for one in used:
            try:
                if one.refresh():
                    logger.info("new connections use the changed keys and certificates")
            except ConfigError as error:
                logger.error("the changed keys and certificates are not used: %s", error)


class TlsServer(RenewableTls):
    """How a listener encrypts, and its connections that shake hands."""

    def __init__(
        self,
        load: Load,
        files: Sequence[str] = (),
        places: int = PLACES,
        *,
        find_expiries: FindExpiries = tuple,
        read: Callable[[], Replaceable | None] = lambda: None,
        source_of: Callable[[SecurityKeys], Source] | None = None,
    ) -> None:
        super().__init__(load, files, find_expiries=find_expiries, read=read, source_of=source_of)
        self._places = places
        self._shaking: dict[TlsAccepted, float] = {}
        """The connections that shake hands → the loop's time (s) of their latest bytes, the longest silent first."""
        self._waiting: dict[TlsAccepted, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def enter(self, connection: TlsAccepted) -> None:
        """Begin the handshake, at once or when there is a place."""
        self._waiting[connection] = None
        self._admit()

    def is_alive(self, connection: TlsAccepted) -> None:
        """Note that bytes of the handshake have arrived."""
        del self._shaking[connection]
        self._shaking[connection] = asyncio.get_running_loop().time()

    def leave(self, connection: TlsAccepted) -> None:
        """Free the place of a connection whose handshake is complete, or which has ended."""
        self._waiting.pop(connection, None)
        if self._shaking.pop(connection, None) is not None:
            self._admit()

    def _admit(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            if len(self._shaking) >= self._places and not self._evict(loop.time()):
                break
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            self._shaking[connection] = loop.time()
            connection.admitted(self.context)
        if self._waiting and self._timer is None:
            self._timer = loop.call_later(_STALLED_MS / 1000, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._admit()

    def _evict(self, now: float) -> bool:
        """Abort the handshake that has been silent the longest; return False if none has been silent for long."""
        connection, since = next(iter(self._shaking.items()))
        if now - since < _STALLED_MS / 1000:
            return False
        del self._shaking[connection]
        connection.abort()
        return True


class TlsAccepted(TlsConnection):
    """A connection that a listener has accepted. Its handler gets the link at once, and bytes after the handshake."""

    def __init__(
        self, handler: StreamHandler, after_read: Callable[[], None] | None, server: TlsServer
    ) -> None:
        super().__init__(handler, after_read)
        self._server = server
        self._first = b""

    def get_buffer(self, hint: int) -> Buffer:
        """Return the receive buffer; before the TLS state exists, only as much as shows that the client speaks TLS."""
        if self._tls is None:
            return _received[: _HEADER_BYTES - len(self._first)]
        return super().get_buffer(hint)

    def buffer_updated(self, count: int) -> None:
        if self._tls is not None:
            if not self._is_secure:
                self._server.is_alive(self)
            super().buffer_updated(count)
            return
        self._first += bytes(_received[:count])
        if not _HANDSHAKE.startswith(self._first[:2]):
            self.failed(ssl.SSLError("the client does not begin a TLS handshake"))
        elif len(self._first) == _HEADER_BYTES:
            super().pause_reading()
            self._server.enter(self)

    def admitted(self, context: ssl.SSLContext) -> None:
        """Begin the handshake."""
        self.begin(context, server=True)
        self._incoming.write(self._first)
        super().resume_reading()

    def secured(self) -> None:
        self._server.leave(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.leave(self)
        super().connection_lost(exc)


class TlsConnected(TlsConnection):
    """A connection to a server. Its handler is created, and gets the link, when the handshake is complete."""

    def __init__(
        self,
        factory: Callable[[], StreamHandler],
        after_read: Callable[[], None] | None,
        context: ssl.SSLContext,
        host: str,
    ) -> None:
        super().__init__(_Nobody(), after_read)
        self._factory = factory
        self._context = context
        self._host = host
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._attach(transport)
        self.begin(self._context, server=False, host=self._host)
        self.shake()

    def secured(self) -> None:
        if not self.ready.done():
            self.ready.set_result(None)
            self.hand_over(self._factory())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ready.done():
            error = exc or self._error or ConnectionResetError("closed during the TLS handshake")
            self.ready.set_exception(error)
        super().connection_lost(exc)


class _Nobody:
    """The handler of a connection to a server before the handshake is complete."""

    def connected(self, link: object) -> None:
        pass

    def get_buffer(self, hint: int) -> Buffer:
        raise NotImplementedError

    def buffer_updated(self, count: int) -> None:
        raise NotImplementedError

    def disconnected(self, error: Exception | None) -> None:
        pass

    def drained(self) -> None:
        pass


async def connect_tls(
    factory: Callable[[], StreamHandler],
    host: str,
    port: int,
    client: RenewableTls,
    after_read: Callable[[], None] | None,
    source: tuple[str, int] | None = None,
) -> StreamHandler:
    """Open a connection, from the address `source` if it is given, and shake hands.

    Raises OSError, of which ssl.SSLError is a subclass.
    """
    connection = TlsConnected(factory, after_read, client.context, host)
    try:
        await asyncio.get_running_loop().create_connection(
            lambda: connection, host, port, local_addr=source
        )
    except asyncio.CancelledError:
        connection.ready.cancel()  # the event loop closes the socket, and nobody waits for the handshake
        raise
    try:
        await connection.ready
    except asyncio.CancelledError:
        connection.abort()
        raise
    return connection.handler


def _records(slices: Sequence[Buffer]) -> Iterator[Buffer]:
    """Return the bytes to encrypt, each as one buffer: small slices that follow each other are joined."""
    small: list[Buffer] = []
    for piece in slices:
        if len(piece) < _SMALL:
            small.append(piece)
            continue
        if small:
            yield small[0] if len(small) == 1 else b"".join(small)
            small = []
        yield memoryview(piece)
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)


def _write_all(write: Callable[[Buffer], int], data: Buffer) -> int:
    """Encrypt all of the data, of which OpenSSL takes one TLS record in each call; return the size."""
    size = len(data)
    taken = write(data)
    while taken < size:
        taken += write(memoryview(data)[taken:])
    return size


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, host: str | None = None) -> None:
    """Carry out a handshake in memory, as between two brokers. Raises ssl.SSLError."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = (
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    for side in sides * _TURNS:
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
