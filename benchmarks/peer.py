"""The same load on minikafka and on Apache Kafka 3.9 in ZooKeeper mode, in turn: `python -m
benchmarks.peer`.

MINIKAFKA_KAFKA_JARS names a directory with Kafka's jars (kafka_2.13 and its dependencies). Each
cluster has three brokers and its own ZooKeeper server; both servers are of the same kind. The
settings in `KEYS` are the same, and all other settings are the defaults, except that minikafka
does not check produced records. Invariant: compared figures were measured in the same minute by
the same generator, while the other cluster was idle.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import uvloop

from benchmarks import closed_loop, kafka, lifetime, load_end_to_end, report
from benchmarks.closed_loop import LoadError
from benchmarks.load_produce import Scenario
from minikafka import LocalCluster
from minikafka.base.config.cluster import ClusterConfig
from minikafka.kafka.wire.versions import METADATA
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.spawning import die_with
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.processes.apache import ApacheZooKeeper

Address = tuple[str, int]

JARS: Final = "MINIKAFKA_KAFKA_JARS"
BROKERS: Final = (1, 2, 3)
HOST: Final = "127.0.0.1"
PLAINTEXT: Final = "PLAINTEXT"
KEYS: Final[Mapping[str, object]] = {
    "zookeeper.session.timeout.ms": 6_000,
    "min.insync.replicas": 2,
    "default.replication.factor": 3,
    "log.segment.delete.delay.ms": 0,
}
JAVA: Final = (
    "java",
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
"""The Java command with the options of kafka-server-start.sh."""
WARM_UP_ROUNDS: Final = 2
"""First rounds that are not counted, because the JVM still compiles frequently used code."""
START_SECONDS: Final = 60.0
FAILOVER_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.02
END_TO_END_RATE: Final = 1_000
RECORD_BYTES: Final = 1_024 + kafka.ONE_RECORD_OVERHEAD


class Row(NamedTuple):
    """One line of the comparison. `better`: 1 if a larger figure is better, -1 if a smaller figure is better."""

    name: str
    unit: str
    better: int


LARGE = Row("16 KiB, 32 in flight", "req/s", 1)
SMALL = Row("259 B, 64 in flight", "req/s", 1)
ALONE = Row("259 B, 1 in flight, p50", "ms", -1)
END_TO_END = Row("1 KiB at 1,000/s, end to end p99", "ms", -1)
FAILOVER = Row("first write after SIGKILL", "s", -1)
MEMORY = Row("resident memory of a broker", "MB", -1)
START = Row("start of the whole cluster", "s", -1)
ROWS: Final = (LARGE, SMALL, ALONE, END_TO_END, FAILOVER, MEMORY, START)
LOADS: Final = (
    (LARGE, Scenario("", 16_384, 32, 10_000)),
    (SMALL, Scenario("", 259, 64, 40_000)),
    (ALONE, Scenario("", 259, 1, 4_000)),
)
Figures = dict[Row, list[float]]


class Cluster(Protocol):
    """A cluster of three brokers, of minikafka or Apache Kafka."""

    name: str

    @property
    def ports(self) -> Mapping[int, int]:
        """The port of each broker's listener PLAINTEXT, by broker id."""

    def ports_of(self, listener: str) -> Mapping[int, int]:
        """Return the port of each broker's listener with this name, by broker id."""

    async def start(self) -> None:
        """Start all processes, without waiting until the brokers serve requests."""

    async def kill(self, broker: int) -> None:
        """Send SIGKILL to a broker."""

    async def start_again(self, broker: int) -> None:
        """Restart a killed broker with its old data."""

    async def stop(self) -> None:
        """Stop all processes of the cluster."""

    def pids(self) -> list[int]:
        """Return the process ids of the brokers."""


class Minikafka:
    """A minikafka cluster. `listener`: the name of a second listener, next to PLAINTEXT."""

    name = "minikafka"

    def __init__(self, settings: Mapping[str, object] = KEYS, listener: str | None = None) -> None:
        config = {**settings, "minikafka.records.check.enable": False}
        # A mapping would be combined with the defaults of LocalCluster, which differ from Kafka's.
        own = ClusterConfig(port=0, broker=config)
        listeners = {} if listener is None else {listener: 0}
        self._cluster = LocalCluster(len(BROKERS), config=own, port=0, listeners=listeners)

    @property
    def ports(self) -> Mapping[int, int]:
        return self.ports_of(PLAINTEXT)

    def ports_of(self, listener: str) -> Mapping[int, int]:
        return {broker.id: broker.ports[listener] for broker in self._cluster.record.brokers}

    async def start(self) -> None:
        await self._cluster.start()

    async def kill(self, broker: int) -> None:
        await self._cluster.kill(broker)

    async def start_again(self, broker: int) -> None:
        await self._cluster.start(broker)

    async def stop(self) -> None:
        await self._cluster.stop()

    def pids(self) -> list[int]:
        found = (self._cluster.process(broker) for broker in BROKERS)
        return [process.pid for process in found if process is not None]


class ApacheKafka:
    """A cluster of Apache Kafka brokers, started from Kafka's jars. `listener`: as in `Minikafka`."""

    name = "Apache Kafka"

    def __init__(
        self,
        jars: str,
        directory: Path,
        settings: Mapping[str, object] = KEYS,
        listener: str | None = None,
    ) -> None:
        self._jars = jars
        self._directory = directory
        self._settings = settings
        names = (PLAINTEXT,) if listener is None else (PLAINTEXT, listener)
        port, *ports = free_ports(1 + len(names) * len(BROKERS), SystemRng())
        self._zookeeper = ApacheZooKeeper(directory / "zookeeper", port, clock=SystemClock())
        self._ports = {
            name: dict(zip(BROKERS, ports[at :: len(names)], strict=True))
            for at, name in enumerate(names)
        }
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def ports(self) -> Mapping[int, int]:
        return self.ports_of(PLAINTEXT)

    def ports_of(self, listener: str) -> Mapping[int, int]:
        return self._ports[listener]

    async def start(self) -> None:
        await self._zookeeper.start()
        for broker in BROKERS:
            self._spawn(broker)

    async def kill(self, broker: int) -> None:
        self._processes[broker].kill()
        await in_thread(self._processes[broker].wait)

    async def start_again(self, broker: int) -> None:
        self._spawn(broker)

    async def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            await in_thread(process.wait)
        await self._zookeeper.kill()

    def pids(self) -> list[int]:
        return [process.pid for process in self._processes.values()]

    def _spawn(self, broker: int) -> None:
        properties = self._directory / f"{broker}.properties"
        keys = {
            **self._settings,
            "broker.id": broker,
            "listeners": ",".join(
                f"{name}://{HOST}:{ports[broker]}" for name, ports in self._ports.items()
            ),
            "log.dirs": self._directory / f"broker-{broker}",
            "zookeeper.connect": self._zookeeper.connect,
        }
        properties.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
        with (self._directory / f"{broker}.log").open("ab") as log:
            self._processes[broker] = subprocess.Popen(
                [*JAVA, "-cp", f"{self._jars}/*", "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=partial(die_with, os.getpid()),  # noqa: PLW1509 - it only calls prctl
            )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peer", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of every load (default: 3)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the number of requests (default: 1)"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append a line of results to FILE"
    )
    options = parser.parse_args()
    lifetime.live(compare(kafka_jars(), options.rounds, options.scale, options.json), uvloop.run)


def kafka_jars() -> str:
    """Return the directory with Kafka's jars. Exit if there is no such directory, or no `java` command."""
    jars = os.environ.get(JARS, "")
    if not list(Path(jars or os.devnull).glob("kafka_2*.jar")) or shutil.which("java") is None:
        sys.exit(f"{JARS} must name a directory with Kafka's jars, and java must be on the path")
    return jars


async def compare(jars: str, rounds: int, scale: float, kept: Path | None) -> None:
    """Run the loads on both clusters in turn, print the table, and append the results to the file `kept`."""
    print(report.machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="peer-") as directory:
        clusters: Sequence[Cluster] = (Minikafka(), ApacheKafka(jars, Path(directory)))
        figures: dict[str, Figures] = {cluster.name: {} for cluster in clusters}
        async with started(clusters, figures):
            for number in range(-WARM_UP_ROUNDS, rounds):
                for cluster in clusters:
                    await load(cluster, {} if number < 0 else figures[cluster.name], scale)
                    # Otherwise the write-back of dirty pages slows the next load.
                    await in_thread(os.sync)
            for _ in range(rounds):
                for cluster in clusters:
                    add_figure(figures[cluster.name], FAILOVER, await failover(cluster))
    show(figures)
    if kept is not None:
        rounded = {
            name: {row.name: [round(value, 3) for value in values] for row, values in mine.items()}
            for name, mine in figures.items()
        }
        report.append(kept, {"machine": report.machine(), "peer": rounded})


@asynccontextmanager
async def started(
    clusters: Sequence[Cluster], figures: Mapping[str, Figures]
) -> AsyncIterator[None]:
    """Start the clusters one after the other, and stop them at exit.

    A cluster has started when every broker knows all three brokers.
    """
    async with AsyncExitStack() as ends:
        for cluster in clusters:
            ends.push_async_callback(cluster.stop)
            before = time.monotonic()
            await cluster.start()
            await wait_until(
                partial(serves, cluster), START_SECONDS, f"{cluster.name} did not serve clients"
            )
            add_figure(figures[cluster.name], START, time.monotonic() - before)
            print(f"{cluster.name} serves", flush=True)
        yield


async def load(cluster: Cluster, figures: Figures, scale: float) -> None:
    """Run one round of every load on one cluster, with new topics of one partition."""
    topic = f"peer-{time.monotonic_ns()}"
    leaders = await create_topic(cluster, topic)
    for row, scenario in LOADS:
        loads = kafka.produce_loads(
            leaders,
            topic,
            scenario.size,
            version=scenario.version,
            in_flight=scenario.in_flight,
            total=max(int(scenario.total * scale), 100),
        )
        result = await closed_loop.run(loads)
        add_figure(figures, row, result.percentile_ms(0.5) if row is ALONE else result.rate)
    quiet = f"{topic}-quiet"
    (leader,) = await create_topic(cluster, quiet)
    count = max(int(END_TO_END_RATE * 4 * scale), 100)
    run = partial(load_end_to_end.run, rate=END_TO_END_RATE, count=count, size=RECORD_BYTES)
    add_figure(
        figures, END_TO_END, (await in_thread(partial(run, quiet, leader))).percentile_ms(0.99)
    )
    add_figure(figures, MEMORY, statistics.mean(map(resident_megabytes, cluster.pids())))
    for used in (topic, quiet):
        await in_thread(partial(kafka.delete_topic, leader[1:], used))


async def create_topic(cluster: Cluster, topic: str, partitions: int = 1) -> list[kafka.Leader]:
    """Create a topic, wait until every broker knows it, and return its leaders."""
    brokers = [(HOST, port) for port in cluster.ports.values()]
    leaders: list[kafka.Leader] = await in_thread(
        partial(kafka.create_topic, brokers[0], topic, partitions)
    )
    for broker in brokers:
        await in_thread(partial(kafka.leaders_of, broker, topic))
    return leaders


async def failover(cluster: Cluster) -> float:
    """Kill the leader of a partition, and return the seconds until a write is acknowledged.

    The killed broker is restarted before the return.
    """
    topic = f"failover-{time.monotonic_ns()}"
    (leader,) = await create_topic(cluster, topic)
    victim = next(broker for broker, port in cluster.ports.items() if port == leader.port)
    others = [(HOST, port) for broker, port in cluster.ports.items() if broker != victim]
    before = time.monotonic()
    await cluster.kill(victim)
    await wait_until(
        partial(in_thread, partial(is_written, others, topic)),
        FAILOVER_SECONDS,
        "no broker accepted a write",
    )
    seconds = time.monotonic() - before
    await cluster.start_again(victim)
    await wait_until(partial(serves, cluster), START_SECONDS, f"broker {victim} did not restart")
    await in_thread(partial(kafka.leaders_of, others[0], topic))
    return seconds


def is_written(brokers: Sequence[Address], topic: str) -> bool:
    """True if the topic's leader is one of these brokers and acknowledges a record.

    The metadata of the first broker names the leader.
    """
    with suppress(OSError, LoadError, KeyError, ValueError):
        with kafka.Session(*brokers[0]) as session:
            metadata = session.ask(METADATA, 1, topics=[{"name": topic}])
        addresses = {item.node_id: (item.host, item.port) for item in metadata.brokers}
        (partition,) = metadata.topics[0].partitions
        address = addresses[partition.leader_id]
        if address not in brokers:
            return False
        request = kafka.produce_request(7, topic, 0, kafka.batch_of(259), 1)
        answer = kafka.produce_answer(7, topic)
        with kafka.Session(*address) as session:
            session.socket.sendall(request)
            frame = session.receive()
        found = answer.fields.unpack(kafka.LENGTH.pack(len(frame)) + frame)
        return found == answer.expected
    return False


async def serves(cluster: Cluster) -> bool:
    """True if every broker of the cluster knows all brokers."""
    return all(
        [await in_thread(partial(knows_all, (HOST, port))) for port in cluster.ports.values()]
    )


def knows_all(broker: Address) -> bool:
    """True if this broker answers and knows all brokers."""
    with suppress(OSError, LoadError), kafka.Session(*broker) as session:
        return len(session.ask(METADATA, 1, topics=[]).brokers) == len(BROKERS)
    return False


def resident_megabytes(pid: int) -> float:
    """Return the resident memory (VmRSS) of a process in MB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def add_figure(figures: Figures, row: Row, value: float) -> None:
    """Add one figure to a row."""
    figures.setdefault(row, []).append(value)


def show(figures: Mapping[str, Figures]) -> None:
    """Print the medians of both systems, and their ratio. A ratio above 1 favours the system in the left column."""
    (first, mine), (second, theirs) = figures.items()
    print(f"\n{'three brokers, medians':34} {first:>12} {second:>12}   ratio")
    for row in ROWS:
        here, there = statistics.median(mine[row]), statistics.median(theirs[row])
        ratio = here / there if row.better > 0 else there / here
        print(f"{row.name:34} {rounded(here):>12} {rounded(there):>12}   {ratio:5.2f}   {row.unit}")


def rounded(value: float) -> str:
    """Return a figure as text: without decimals if the figure is at least 100, else with two decimals."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


async def wait_until(
    condition: Callable[[], Awaitable[bool]], seconds: float, complaint: str
) -> None:
    """Poll the condition until it is true. Raises LoadError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not await condition():
        if time.monotonic() > deadline:
            raise LoadError(f"{complaint} within {seconds:g} s")
        await asyncio.sleep(POLL_SECONDS)


async def in_thread(function: Callable[[], Any]) -> Any:
    """Run a blocking function in a thread."""
    return await asyncio.get_running_loop().run_in_executor(None, function)


if __name__ == "__main__":
    main()
