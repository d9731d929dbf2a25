"""The loopback address from which each broker of a cluster with faults connects, so that the proxy knows it.

All clusters use the same addresses: a proxy gets connections of its own cluster only, and the ports of two connections
from one address differ. A client that connects from one of these addresses would be taken for a broker.
"""

from __future__ import annotations

from typing import Final

from minikafka.tools.cluster.proxy.rules import CLIENTS, Peer

_PREFIX: Final = "127.77."


def source_of(broker_id: int) -> str:
    """Return the address from which a broker connects."""
    high, low = divmod(broker_id, 256)
    return f"{_PREFIX}{high}.{low}"


def peer_at(address: str) -> Peer:
    """Return who connects from an address."""
    if not address.startswith(_PREFIX):
        return CLIENTS
    high, low = address.removeprefix(_PREFIX).split(".")
    return 256 * int(high) + int(low)
