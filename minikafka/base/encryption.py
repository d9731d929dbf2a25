"""The encryption of connections, as the code above the transports sees it."""

from __future__ import annotations

from typing import Protocol


class Tls(Protocol):
    """How connections are encrypted. Only the transport that made it can use it (`runtime/tls.py`)."""

    def refresh(self) -> bool:
        """Use the files of keys and certificates for new connections if they have changed; return True if they have.

        Raises ConfigError, once for each change, and keeps what was in use.
        """
