"""Faults of one broker: SIGKILL, SIGSTOP and a controlled stop, and their ends."""

from __future__ import annotations

from minikafka.cluster import LocalCluster

KINDS = ("kill", "pause", "stop")
SECONDS = (0.5, 10.0)
"""Range of a fault's length, from shorter to longer than the broker's ZooKeeper session timeout."""


async def begin(cluster: LocalCluster, kind: str, broker_id: int) -> None:
    """Kill, pause or stop the broker."""
    if kind == "kill":
        await cluster.kill(broker_id)
    elif kind == "pause":
        await cluster.pause(broker_id)
    else:
        await cluster.stop(broker_id)


async def end(cluster: LocalCluster, kind: str, broker_id: int) -> None:
    """Resume a paused broker, start any other."""
    await (cluster.resume if kind == "pause" else cluster.start)(broker_id)
