"""Responses to frames that a test sends to a broker in memory."""

from __future__ import annotations

from support.kafka.peer import Peer
from support.until import until

from minikafka.simulation.cluster import MemoryCluster


async def answer(cluster: MemoryCluster, request: bytes) -> bytes | None:
    """Send a request to broker 0 on a new connection.

    Return the response, or None if the broker closed the connection.
    """
    peer = Peer()
    await cluster.transport.connect(lambda: peer, "127.0.0.1", 9092)
    peer.link.send([request])
    await until(lambda: peer.is_closed or bool(peer.frames()))
    frames = peer.frames()
    peer.link.abort()
    return frames[0] if frames else None
