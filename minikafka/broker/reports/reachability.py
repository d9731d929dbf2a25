"""Which advertised addresses cannot be reached from this broker, for `minikafka cluster health` and as a warning.

Clients learn the addresses of all brokers from any one of them. So an address that is wrong (`advertised.listeners`)
shows only when somebody connects to it. Only the connection is tried, without TLS and login.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any, Final

from minikafka.base.endpoints import Endpoint
from minikafka.base.model import Broker, BrokerId
from minikafka.base.ports import Buffer, Link, Transport
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.side_by_side import AT_ONCE, all_of

logger = logging.getLogger(__name__)

PERIOD_MS: Final = 30_000
"""Time after which all addresses are tried again; those of a broker that has just registered are tried at once."""
TIMEOUT_MS: Final = 3_000
_Address = tuple[BrokerId, Endpoint]


class Reachability:
    """The addresses for clients of the other brokers to which the last attempt to connect has failed, with the reason.

    `control`: the name of the control listener, which clients do not use.
    """

    def __init__(
        self, broker_id: BrokerId, metadata: MetadataCache, transport: Transport, control: str
    ) -> None:
        self._id = broker_id
        self._metadata = metadata
        self._transport = transport
        self._control = control
        self._tried: set[tuple[BrokerId, int]] = set()
        """(id, epoch) of each broker that the last attempt included."""
        self._failures: dict[_Address, str] = {}

    async def run(self) -> None:
        """Try all addresses every `PERIOD_MS`, and as soon as the metadata has a new broker. Never returns."""
        while True:
            await self._try_all()
            await self._metadata.wait_until(self._has_new_broker, PERIOD_MS)

    def report(self) -> list[dict[str, Any]]:
        """Return a row for each address that cannot be reached, for the call `state`."""
        return [
            {"broker": broker, "address": str(endpoint), "reason": reason}
            for (broker, endpoint), reason in sorted(self._failures.items(), key=str)
        ]

    def _has_new_broker(self) -> bool:
        return any((broker.id, broker.epoch) not in self._tried for broker in self._others())

    def _others(self) -> list[Broker]:
        return [broker for broker in self._metadata.brokers.values() if broker.id != self._id]

    async def _try_all(self) -> None:
        brokers = self._others()
        self._tried = {(broker.id, broker.epoch) for broker in brokers}
        addresses = [
            (broker.id, item)
            for broker in brokers
            for item in broker.endpoints
            if item.name != self._control
        ]
        reasons = await all_of(map(self._failure, addresses), AT_ONCE)
        found = {
            address: reason for address, reason in zip(addresses, reasons, strict=True) if reason
        }
        for (broker_id, endpoint), reason in found.items():
            if (broker_id, endpoint) not in self._failures:
                logger.warning(
                    "%s of broker %d cannot be reached from this broker: %s; correct its advertised.listeners, or the "
                    "network",
                    endpoint,
                    broker_id,
                    reason,
                )
        self._failures = found

    async def _failure(self, address: _Address) -> str:
        """Return why no connection to the address can be opened, "" if one can."""
        _, endpoint = address
        try:
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                await self._transport.connect(_Trial, endpoint.host, endpoint.port)
        except TimeoutError:
            return f"no answer within {TIMEOUT_MS / 1000:g} s"
        except OSError as error:
            number = error.errno or 0  # below 0: the name of the host is not known
            text = os.strerror(number) if number > 0 else error.strerror or str(error)
            return text.lower()
        return ""


class _Trial:
    """The handler of a connection that is closed as soon as it is open."""

    def connected(self, link: Link) -> None:
        """Close the connection."""
        link.close()

    def get_buffer(self, hint: int) -> Buffer:
        """Return room for bytes that nobody reads."""
        return bytearray(1)

    def buffer_updated(self, count: int) -> None:
        """Ignore the bytes."""

    def disconnected(self, error: Exception | None) -> None:
        """The end is expected."""

    def drained(self) -> None:
        """Nothing is sent."""
