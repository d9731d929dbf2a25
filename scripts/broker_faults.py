"""Begins and ends the faults of one broker: SIGKILL, SIGSTOP or a controlled stop."""

from __future__ import annotations

from minikafka.tools.cluster import LocalCluster

KINDS = ("kill", "pause", "stop")
SECONDS = (0.5, 10.0)
"""Range of the duration of a fault. Some faults are longer than the broker's ZooKeeper session timeout."""


async def begin(cluster: LocalCluster, kind: str, broker_id: int) -> None:
    """Kill, pause or stop the broker."""
    if kind == "kill":
        await cluster.kill(broker_id)
    elif kind == "pause":
        await cluster.pause(broker_id)
    else:
        await cluster.stop(broker_id)


async def end(cluster: LocalCluster, kind: str, broker_id: int) -> None:
    """End a fault: resume a paused broker, or start a killed or stopped broker."""
    await (cluster.resume if kind == "pause" else cluster.start)(broker_id)
