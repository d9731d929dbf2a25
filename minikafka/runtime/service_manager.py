"""Messages to the service manager that started this process, such as systemd.

The protocol is `sd_notify`: one datagram per message, to the socket in the environment variable NOTIFY_SOCKET.
"""

from __future__ import annotations

import logging
import os
import socket
from typing import Final

logger = logging.getLogger(__name__)

VARIABLE: Final = "NOTIFY_SOCKET"
_TIMEOUT_S: Final = 5.0
"""Time to wait while the queue of the manager's socket is full."""


class ServiceManager:
    """The service manager of this process. Without one, no message is sent."""

    def __init__(self) -> None:
        self._address = os.environ.pop(VARIABLE, "")  # no child may send messages

    def ready(self, status: str) -> None:
        """Tell the manager that this process serves. `status`: one line for people."""
        self._send(f"READY=1\nSTATUS={status}")

    def stopping(self, status: str) -> None:
        """Tell the manager that this process has begun to stop."""
        self._send(f"STOPPING=1\nSTATUS={status}")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        # A name that begins with @ is in Linux's abstract namespace.
        path = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(_TIMEOUT_S)
                sender.sendto(message.encode(), path)
        except OSError as error:
            logger.warning("%s=%s cannot be reached: %s", VARIABLE, self._address, error)
