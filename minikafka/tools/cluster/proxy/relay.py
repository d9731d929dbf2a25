"""One connection through the proxy: its two sockets, and a pipe for each direction.

The near end is who has connected to the proxy; the far end is the broker or ZooKeeper behind the port. A connection
that a fault concerns when it is opened is accepted, and gets no answer: the far end learns of it after the fault.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import struct
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, Protocol, cast

from minikafka.tools.cluster.proxy.pipe import End, Pipe, RequestCounts
from minikafka.tools.cluster.proxy.requests import RequestScanner
from minikafka.tools.cluster.proxy.rules import FETCH, Effect, Way

HOST: Final = "127.0.0.1"
_RESET: Final = struct.pack("ii", 1, 0)
"""The value of SO_LINGER with which a close sends RST."""


class RelaySocket(asyncio.Protocol):
    """One of the two sockets. `take` gets what its peer sends; `lost` is called when the socket is closed."""

    def __init__(
        self,
        sock: socket.socket,
        take: Callable[[bytes | End], None],
        full: Callable[[bool], None],
        lost: Callable[[], None],
    ) -> None:
        self._socket = sock
        self._take = take
        self._full = full
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._has_ended = False
        self._is_closing = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        if self._is_paused:
            self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Take bytes of the peer."""
        self._take(data)

    def eof_received(self) -> bool:
        """Take the end of what the peer sends; return True, because the other direction stays open."""
        if not self._has_ended:  # uvloop calls this again when reading continues after a pause
            self._has_ended = True
            self._take(End(is_reset=False))
        return True

    def connection_lost(self, error: Exception | None) -> None:
        """Take the break of a connection that was not closed from here."""
        self._transport = None
        self._full(False)
        if not self._is_closing:
            self._take(End(is_reset=True))
        self._lost()

    def pause_writing(self) -> None:
        """Note that the socket takes no more bytes."""
        self._full(True)

    def resume_writing(self) -> None:
        """Note that the socket takes bytes again."""
        self._full(False)

    @property
    def is_open(self) -> bool:
        """True if bytes can be sent."""
        return self._transport is not None

    def hold_reading(self, is_held: bool) -> None:
        """Stop the reading, or continue it."""
        if is_held != self._is_paused:
            self._is_paused = is_held
            if self._transport is not None and not self._transport.is_closing():
                (self._transport.pause_reading if is_held else self._transport.resume_reading)()

    def send(self, item: bytes | End) -> None:
        """Send bytes, or that the other end has closed or broken the connection."""
        if self._transport is None:
            return
        if not isinstance(item, End):
            self._transport.write(item)
        elif item.is_reset:
            self.reset()
        elif self._transport.can_write_eof():
            with suppress(OSError, RuntimeError):
                self._transport.write_eof()

    def close(self) -> None:
        """Send what was written, then close."""
        self._is_closing = True
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Close at once with RST."""
        self._is_closing = True
        if self._transport is not None:
            with suppress(OSError):
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._transport.abort()


class RelayOwner(Protocol):
    """What a connection needs of the proxy."""

    def effect(self, way: Way) -> Effect:
        """Return what the current faults do to a way."""

    def note(self, connection: Relay, effect: Effect, size: int, requests: int) -> None:
        """Count bytes and requests of a connection that faults hit."""

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> object:
        """Run a coroutine."""

    def forget(self, connection: Relay) -> None:
        """Forget a connection that has ended."""


class Relay:
    """One connection. `source`, `behind`: from which address and to which port the far end is reached.

    `ended` is called when the far end closes or refuses the connection, before the near end learns of it.
    """

    def __init__(
        self,
        owner: RelayOwner,
        way: Way,
        sock: socket.socket,
        source: str,
        behind: int,
        watches: RequestCounts,
        ended: Callable[[], None],
        *,
        is_plain: bool,
    ) -> None:
        self._owner = owner
        self._socket = sock
        self._source = source
        self._behind = behind
        self._ended = ended
        self._far: RelaySocket | None = None
        self._is_opening = False
        self._is_over = False
        self.is_given_up = False
        """True if the near end has closed the connection before the far end could learn of it."""
        self._ends = 0
        scanner = RequestScanner() if is_plain and way.link == FETCH else None
        self.up = Pipe(
            way,
            send=self._send_up,
            hold_reading=self._hold_near,
            note=self._note,
            watches=watches,
            scanner=scanner,
        )
        self.down = Pipe(
            Way(way.receiver, way.sender, way.link),
            send=self._send_down,
            hold_reading=self._hold_far,
            note=self._note,
            watches=watches,
            scanner=None,
        )
        self._near = RelaySocket(sock, self._take_up, self.down.set_receiver_full, self._near_lost)

    def _hold_near(self, is_held: bool) -> None:
        self._near.hold_reading(is_held)

    def _hold_far(self, is_held: bool) -> None:
        if self._far is not None:
            self._far.hold_reading(is_held)

    async def start(self) -> None:
        """Read from the near end, and connect to the far end if no fault forbids it."""
        self.update()
        for effect in (self.up.effect, self.down.effect):
            if not effect.is_open:
                self._note(effect, 0, 0)
        self.up.is_lossy = self.up.effect.is_dropped or self.down.effect.is_dropped
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: self._near, self._socket)
        self.down.is_ready = True
        self.down.flush()

    def update(self) -> None:
        """Apply the current faults."""
        if self._is_over:
            return
        for pipe in (self.up, self.down):
            pipe.effect = self._owner.effect(pipe.way)
        is_lossy = self.up.is_lossy or self.down.is_lossy
        if (is_lossy or self.is_given_up) and not self._is_blocked:
            self.reset()
            return
        if self._far is None and not self._is_opening and not self._is_blocked:
            self._is_opening = True
            self._owner.spawn(self._open(), "connect")
        self.up.flush()
        self.down.flush()

    @property
    def _is_blocked(self) -> bool:
        return not (self.up.effect.is_open and self.down.effect.is_open)

    async def _open(self) -> None:
        loop = asyncio.get_running_loop()
        sock = socket.socket()
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.bind((self._source, 0))
            await loop.sock_connect(sock, (HOST, self._behind))
            far = RelaySocket(sock, self._take_down, self.up.set_receiver_full, self._far_lost)
            await loop.create_connection(lambda: far, sock=sock)
        except OSError as error:
            sock.close()
            if error.errno == errno.ECONNREFUSED:
                self._ended()
            self.reset()
            return
        if self._is_over:
            far.reset()
            return
        self._far = far
        self.up.is_ready = True
        self.up.flush()

    def _take_up(self, item: bytes | End) -> None:
        if isinstance(item, End) and self._far is None and self._is_blocked:
            self.is_given_up = True
        self.up.receive(item)

    def _take_down(self, item: bytes | End) -> None:
        if isinstance(item, End):
            self._ended()  # the port behind is closed before the near end can learn of it
        self.down.receive(item)

    def _send_up(self, item: bytes | End) -> None:
        assert self._far is not None, "the pipe waits for it"
        self._far.send(item)
        self._count_end(item)

    def _send_down(self, item: bytes | End) -> None:
        self._near.send(item)
        self._count_end(item)

    def _count_end(self, item: bytes | End) -> None:
        """Close both sides when both ends have passed."""
        if isinstance(item, End):
            self._ends += 1
            if item.is_reset or self._ends == 2:
                self._near.close()
                if self._far is not None:
                    self._far.close()
                self._finish()

    def _near_lost(self) -> None:
        if self._far is not None and not self._far.is_open:
            self._finish()

    def _far_lost(self) -> None:
        if not self._near.is_open:
            self._finish()

    def _note(self, effect: Effect, size: int, requests: int) -> None:
        self._owner.note(self, effect, size, requests)

    def reset(self) -> None:
        """Break the connection with RST on both sides."""
        self._near.reset()
        if self._far is not None:
            self._far.reset()
        self._finish()

    def _finish(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        self.up.close()
        self.down.close()
        self._owner.forget(self)
