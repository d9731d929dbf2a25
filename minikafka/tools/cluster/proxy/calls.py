"""Calls to the proxy of a cluster: one line of JSON over a Unix socket, and one line as the answer.

The socket is in the abstract namespace, which is that of the ports, and is named after the process, so that a call
never reaches another one. Both sides check that the other one belongs to the same user.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import struct
from typing import Any, Final

from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.processes import ProcessId

CALL_SECONDS: Final = 5.0
LINE_MAX: Final = 1024 * 1024
_CREDENTIALS: Final = struct.Struct("3i")


class NoProxy(ClusterError):
    """The process of the proxy has ended."""


def address_of(process: ProcessId) -> str:
    """Return the address of the socket of a proxy."""
    return f"\0minikafka-faults-{process.pid}-{process.started}"


def is_same_user(sock: socket.socket) -> bool:
    """True if the process at the other end of a Unix socket belongs to this user, or to root."""
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(found)[1] in (os.getuid(), 0)


async def call(
    process: ProcessId, verb: str, arguments: dict[str, Any], seconds: float | None = CALL_SECONDS
) -> Any:
    """Make a call and return the answer. Raises NoProxy, and ClusterError with the refusal of the proxy."""
    try:
        async with asyncio.timeout(seconds):
            answer = await _exchange(process, {"verb": verb, **arguments})
    except TimeoutError as error:
        raise ClusterError(
            f"the proxy of faults, process {process.pid}, does not answer"
        ) from error
    except OSError as error:
        text = f"the proxy of faults, process {process.pid}, has ended, and with it every connection and every fault"
        raise NoProxy(f"{text}: start the cluster again", "minikafka up") from error
    if "error" in answer:
        raise ClusterError(answer["error"])
    return answer["result"]


async def _exchange(process: ProcessId, request: dict[str, Any]) -> Any:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, address_of(process))
        if not is_same_user(sock):
            raise ConnectionError("another user's process")
        reader, writer = await asyncio.open_unix_connection(sock=sock.dup(), limit=LINE_MAX)
        try:
            writer.write(json.dumps(request).encode() + b"\n")
            line = await reader.readline()
        finally:
            writer.close()
    if not line:
        raise ConnectionError("no answer")
    return json.loads(line)
