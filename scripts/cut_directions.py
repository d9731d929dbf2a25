"""Every single direction of a cluster's network, cut once in virtual time, for `broken-networks --simulation`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

from minikafka.client import Client, NewTopic, Record
from minikafka.simulation.cluster import ZOOKEEPER, MemoryCluster
from minikafka.simulation.loop import run_seeded

LAG_MS = 4_000
SESSION_MS = 6_000
HELD = 20
"""Records that are written one after the other during a cut, with a pause of a second between them."""
RESUMED_MS = max(1.5 * LAG_MS, SESSION_MS + 10_000)
PARTS = (0, 1, 2, ZOOKEEPER)


def check_all(seed: int, say: Callable[[str], None]) -> list[str]:
    """Cut each direction in both modes; return what did not go as stated."""
    problems = []
    for mode in ("controller", "leaders"):
        found = run_seeded(seed, _directions(mode, say))
        problems += [f"{mode}: {problem}" for problem in found]
    return problems


async def _directions(mode: str, say: Callable[[str], None]) -> list[str]:
    keys = {
        "replica_lag_time_max_ms": LAG_MS,
        "zookeeper_session_timeout_ms": SESSION_MS,
        "min_insync_replicas": 2,
    }
    problems: list[str] = []
    acked: list[bytes | None] = []
    async with MemoryCluster(3, coordination=mode, **keys) as cluster, cluster.client() as user:
        await user.create_topics(NewTopic("t", assignment={0: (1, 2, 0)}))
        await cluster.until_all_are_in_sync()
        for source, target in permutations(PARTS, 2):
            longest = await _during(cluster, source, target, user, acked)
            say(f"{mode}: {source} to {target}: longest write {longest / 1000:.1f} s")
            if longest > RESUMED_MS:
                problems.append(
                    f"a write took {longest} ms during the cut from {source} to {target}"
                )
        read = [row.value async for row in user.consume("t", until_end=True)]
    if lost := {*acked} - {*read}:
        problems.append(f"{len(lost)} acknowledged records are lost")
    return problems


async def _during(
    cluster: MemoryCluster,
    source: int | str,
    target: int | str,
    user: Client,
    acked: list[bytes | None],
) -> int:
    """Write during the cut; return how long the slowest write took in milliseconds."""
    longest = 0
    cluster.cut(source, target)
    for _ in range(HELD):
        value, begun = b"%d" % len(acked), cluster.clock.now()
        await user.produce("t", [Record(value=value)])
        acked.append(value)
        longest = max(longest, cluster.clock.now() - begun)
        await cluster.clock.sleep(1_000)
    cluster.heal(source, target)
    await cluster.until_all_are_in_sync()
    await cluster.clock.sleep(SESSION_MS)
    return longest
