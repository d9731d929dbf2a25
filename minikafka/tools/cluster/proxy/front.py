"""One port of the proxy, in front of one port of a broker or of ZooKeeper.

Invariant: the port refuses connections while the port behind it does, as brokers find a death by a refused connection.
The proxy looks behind when a process there has closed a connection, and regularly while nothing listens there.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Final, NamedTuple

from minikafka.tools.cluster.proxy.relay import HOST
from minikafka.tools.cluster.proxy.rules import Peer

logger = logging.getLogger(__name__)

_TRIAL_SECONDS: Final = 0.02
_BACKLOG: Final = 1024
_ACCEPTED_MAX: Final = 64
_RECHECK_SECONDS: Final = 0.005
"""A process that is killed closes its connections and its ports one after the other, in any order."""


class ProxyRoute(NamedTuple):
    """A port, and what is behind it. `is_plain`: the proxy can read the requests."""

    port: int
    behind: int
    target: Peer
    link: str
    is_plain: bool


class Front:
    """A port of the proxy. `accept(route, socket, address)` gets each new connection."""

    def __init__(
        self, route: ProxyRoute, accept: Callable[[ProxyRoute, socket.socket, str], None]
    ) -> None:
        self.route = route
        self._accept = accept
        self._listening: socket.socket | None = None
        self._recheck: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """True if the port accepts connections."""
        return self._listening is not None

    def look(self) -> None:
        """Open the port if the port behind it accepts connections, else close it."""
        is_up = _is_open(self.route.behind)
        if is_up and self._listening is None:
            self._open()
        elif not is_up and self._listening is not None:
            self.close()

    def look_twice(self) -> None:
        """Look now, and a moment later: the process behind has closed a connection, and may be dying."""
        self.look()
        if self._listening is not None and self._recheck is None:
            self._recheck = asyncio.get_running_loop().call_later(
                _RECHECK_SECONDS, self._look_again
            )

    def _look_again(self) -> None:
        self._recheck = None
        self.look()

    def _open(self) -> None:
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)
        try:
            listening.bind((HOST, self.route.port))
            listening.listen(_BACKLOG)
        except OSError as error:
            listening.close()
            logger.warning("port %d cannot be opened: %s", self.route.port, error.strerror)
            return
        self._listening = listening
        asyncio.get_running_loop().add_reader(listening, self._accept_all)

    def close(self) -> None:
        """Refuse new connections."""
        if self._recheck is not None:
            self._recheck.cancel()
            self._recheck = None
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening)
            self._listening.close()
            self._listening = None

    def _accept_all(self) -> None:
        for _ in range(_ACCEPTED_MAX):
            if self._listening is None:
                return
            try:
                sock, address = self._listening.accept()
            except OSError:
                return
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._accept(self.route, sock, address[0])


def _is_open(port: int) -> bool:
    """True if a connection to the port is not refused. The answer comes at once, unless the port's queue is full."""
    with socket.socket() as trial:
        trial.settimeout(_TRIAL_SECONDS)
        try:
            trial.connect((HOST, port))
        except ConnectionRefusedError:
            return False
        except OSError:
            pass
    return True
