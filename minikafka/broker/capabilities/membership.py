"""The membership of one broker in its cluster: registration, session and departure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from minikafka.base.model import Broker, BrokerId


class Membership(Protocol):
    """The membership of this broker. If the service does not answer, async methods raise CoordinationError."""

    @property
    def session_state(self) -> str:
        """The state, in one word, of the session with the service that stores the cluster's state."""

    @property
    def session_timeout_ms(self) -> int:
        """Milliseconds without a heartbeat after which the cluster considers this broker dead."""

    async def start(self, broker: Broker, on_registered: Callable[[int], None]) -> None:
        """Register the broker with its endpoints.

        Calls `on_registered(broker_epoch)` after this registration, and after each new registration that follows
        a lost session. Each broker epoch is higher than all earlier epochs of this broker. Raises ConfigError if
        another broker has the same id.
        """

    def report_lost_connection(self, broker_id: BrokerId) -> None:
        """Tell the cluster, in the background, that a connection to this broker has ended. It may have died."""

    def report_log_dir_failure(self) -> None:
        """Announce that a log directory of this broker has failed; retry in the background (R67)."""

    async def resign(self) -> None:
        """Give up every duty for the cluster, and accept no further one. A shutdown calls this before `stop`."""

    async def stop(self) -> None:
        """Leave the cluster. The other brokers are notified at once that this broker has left."""
