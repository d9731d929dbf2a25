"""Opening a console: its socket, its token, and the cluster that its command names."""

from __future__ import annotations

import errno
import socket
from typing import Final

from minikafka.tools.cluster.directory import HOST
from minikafka.tools.console.errors import RequestRefused

_BACKLOG: Final = 64


def listen(port: int) -> socket.socket:
    """Return a socket that listens on 127.0.0.1. 0: any free port.

    Raises RequestRefused if another process uses the port.
    """
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((HOST, port))
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno != errno.EADDRINUSE:
            raise
        text = f"port {port} on {HOST} is in use, perhaps by another console"
        raise RequestRefused(
            409, text, "name another port, or leave --port out for a free one"
        ) from error
    listening.setblocking(False)
    return listening
