"""SIGKILL of minikafka's own ZooKeeper server under load, in its own process and on this disk."""

from __future__ import annotations

from pathlib import Path

from support.zookeeper.deaths import Deaths, FrequentSnapshots

from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cluster.ports import free_ports

ROUNDS = 4


async def test_killed_zookeeper_keeps_all_that_was_acknowledged_or_read(tmp_path: Path):
    [port] = free_ports(1, SystemRng())
    server = FrequentSnapshots(tmp_path, port, clock=SystemClock())
    await server.start()
    deaths = Deaths(server, seed=4)
    try:
        await deaths.prepare()
        for _ in range(ROUNDS):
            await deaths.round()
        await deaths.close()
    finally:
        await server.kill()

    assert deaths.counts.kills == ROUNDS
    assert deaths.counts.acked > 1_000
    snapshots = {path.name for path in (tmp_path / "data" / "version-2").glob("snapshot.*")}
    assert snapshots - {"snapshot.0"}
