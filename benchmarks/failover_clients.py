"""How long unmodified producers stop when the leader of their partition is killed.

Run it as `python -m benchmarks.failover_clients`. Each client sends a record every 5 ms with acks=all to one partition
with three replicas, with its default settings (`tests/clients/drivers`). After some seconds the leader is killed, which
is not the controller. The figure is the longest time without an acknowledgement. Apache Kafka takes every kill in turn,
if MINIKAFKA_KAFKA_JARS names the directory of its jars; the Java client needs these jars too.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from benchmarks import kafka, lifetime, peer, report
from benchmarks.closed_loop import LoadError
from benchmarks.peer import HOST, Cluster
from minikafka.kafka.wire.versions import METADATA

DRIVERS: Final = report.ROOT / "tests" / "clients" / "drivers"
LIBRARIES: Final = ("confluent-kafka", "aiokafka", "kafka-python")
JAVA: Final = "java"
WARM_ACKS: Final = 300
"""Number of acknowledgements before the kill."""
ACKS_AFTER: Final = 200
"""Number of acknowledgements after the kill that end the measurement, if one of them was late."""
LIMIT_SECONDS: Final = 60.0


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.failover_clients", description=__doc__
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="kills per client and cluster (default: 3)"
    )
    options = parser.parse_args()
    jars = peer.kafka_jars() if os.environ.get(peer.JARS) else None
    lifetime.live(compare(jars, options.rounds), uvloop.run)


async def compare(jars: str | None, rounds: int) -> None:
    """Measure every client on every cluster, in turn, and print the medians and the longest pauses."""
    print(report.machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="failover-") as directory:
        clusters: list[Cluster] = [peer.Minikafka()]
        commands = {
            name: [sys.executable, str(DRIVERS / "python_clients.py"), name] for name in LIBRARIES
        }
        if jars is not None:
            clusters.append(peer.ApacheKafka(jars, Path(directory)))
            commands[JAVA] = await _java(jars, directory)
        async with peer.started(clusters, {cluster.name: {} for cluster in clusters}):
            for name, command in commands.items():
                pauses: dict[str, list[float]] = {cluster.name: [] for cluster in clusters}
                for _ in range(rounds):
                    for cluster in clusters:
                        pauses[cluster.name].append(await longest_pause(cluster, command))
                show(name, pauses)


def show(client: str, pauses: dict[str, list[float]]) -> None:
    """Print one line for a client."""
    parts = (
        f"{name} {statistics.median(found):.2f} s (at most {max(found):.2f})"
        for name, found in pauses.items()
    )
    print(f"{client:16} {'   '.join(parts)}", flush=True)


async def _java(jars: str, directory: str) -> list[str]:
    """Compile the Java driver; return its command."""
    source = str(DRIVERS / "java" / "Driver.java")
    compiler = await asyncio.create_subprocess_exec(
        "javac", "-cp", f"{jars}/*", "-d", directory, source
    )
    if await compiler.wait():
        sys.exit("javac cannot compile the Java client")
    return ["java", "-cp", f"{directory}:{jars}/*", "Driver"]


async def longest_pause(cluster: Cluster, command: Sequence[str]) -> float:
    """Return the longest time in seconds without an acknowledgement after a kill of the leader."""
    topic = f"pause-{time.monotonic_ns()}"
    leader = await _topic_led_by_another_than_the_controller(cluster, topic)
    bootstrap = ",".join(f"{HOST}:{port}" for port in cluster.ports.values())
    client = await asyncio.create_subprocess_exec(
        *command, "stream", bootstrap, topic, stdin=PIPE, stdout=PIPE, stderr=DEVNULL
    )
    try:
        pause = await _pause_of(client, partial(cluster.kill, leader))
    finally:
        with suppress(ProcessLookupError):
            client.kill()
        await client.wait()
        await cluster.start_again(leader)
        complaint = f"broker {leader} did not restart"
        await peer.wait_until(partial(peer.serves, cluster), peer.START_SECONDS, complaint)
    return pause


async def _pause_of(
    client: asyncio.subprocess.Process, kill: Callable[[], Awaitable[None]]
) -> float:
    assert client.stdout is not None
    longest, count, last, killed = 0.0, 0, 0.0, False
    async with asyncio.timeout(LIMIT_SECONDS):
        while not killed or count < ACKS_AFTER:
            if not await client.stdout.readline():
                raise LoadError("the client has ended")
            now = time.monotonic()
            count += 1
            if killed:
                longest, last = max(longest, now - last), now
            elif count == WARM_ACKS:
                killed, count, last = True, 0, now
                await kill()
    return longest


async def _topic_led_by_another_than_the_controller(cluster: Cluster, topic: str) -> int:
    """Create topics of one partition until the controller does not lead one; return the leader of this one."""
    brokers = [(HOST, port) for port in cluster.ports.values()]
    while True:
        (leader,) = await peer.create_topic(cluster, topic)
        broker = next(id_ for id_, port in cluster.ports.items() if port == leader.port)
        with kafka.Session(*brokers[0]) as session:
            if session.ask(METADATA, 1, topics=[]).controller_id != broker:
                return broker
        await peer.in_thread(partial(kafka.delete_topic, brokers[0], topic))
        await asyncio.sleep(kafka.DELETED_SECONDS)


if __name__ == "__main__":
    main()
