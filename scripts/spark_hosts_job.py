"""Spark on several machines: each worker has a host of its own, and one host dies while a stream runs.

    spark-hosts [--records N] [--cut] [--keep DIR]

A broker, Spark's master and the driver run on this machine. Two hosts with an address each (network namespaces on one
bridge) run a worker of a standalone cluster, and reach the broker at the address that it advertises. Driver and
executors share the directory of the checkpoint. A stream copies a topic to another one with `exactlyOnce`. After some
micro-batches, all processes of the first host are killed, or with `--cut` its network is cut: no connection is
closed, and Spark notices after `spark.network.timeout`. The exit code is 0 only if executors on both hosts had
rows, the stream ends without help, and a `read_committed` consumer finds every record exactly once. The job prints the
peak memory of the Python processes of each executor. It needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType
from standalone_spark import Host, StandaloneSpark

from minikafka.runtime.clock import SystemRng
from minikafka.spark.session import session
from minikafka.tools.cluster.ports import free_ports

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from support.hosts.namespaces import Hosts, hosts

SOURCE, COPY = "source", "copy"
SECRET = "one secret of all hosts"
PARTITIONS = 6
MICRO_BATCHES = 12
BEFORE_DEATH = 3
"""Micro-batches that both hosts finish before one of them dies."""
START_SECONDS = 120.0
LOST_SECONDS = 600.0
POLL_SECONDS = 0.2
TIMEOUT = "20s"
"""Time after which Spark gives up an executor that does not answer."""
ADDRESS = "SPARK_LOCAL_IP"


@contextmanager
def broker(address: str, directory: Path) -> Iterator[str]:
    """Run ZooKeeper and a broker that advertises `address`. Yield its bootstrap server when it answers."""
    keeper, port = free_ports(2, SystemRng())
    bootstrap = f"{address}:{port}"
    keys = {
        "broker.id": 1,
        "listeners": f"PLAINTEXT://{bootstrap}",
        "log.dirs": str(directory / "data"),
        "zookeeper.connect": f"127.0.0.1:{keeper}",
        "minikafka.cluster.secret": SECRET,
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
    }
    file = directory / "broker.toml"
    lines = (f'"{name}" = {json.dumps(value)}\n' for name, value in keys.items())
    file.write_text("[broker]\n" + "".join(lines))
    data = str(directory / "zookeeper")
    with ExitStack() as stack:
        for command in (
            ["zookeeper", "--data", data, "--host", "127.0.0.1", "--port", str(keeper)],
            ["broker", "--config", str(file)],
        ):
            stack.enter_context(_process(command, directory / f"{command[0]}.log"))
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        admin.list_topics(timeout=START_SECONDS)
        created = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (SOURCE, COPY)])
        for future in created.values():
            future.result()
        yield bootstrap


@contextmanager
def _process(arguments: list[str], log: Path) -> Iterator[None]:
    with log.open("wb") as file:
        command = [sys.executable, "-m", "minikafka", *arguments]
        started = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield
    finally:
        started.kill()
        started.wait()


def fill(bootstrap: str, records: int) -> None:
    """Write the numbers from 0 as text, in turn to the partitions."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(records):
        while True:
            try:
                producer.produce(SOURCE, str(number).encode(), partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if left := producer.flush(START_SECONDS):
        raise KafkaException(f"{left} records were not written")


def copies(bootstrap: str) -> tuple[Counter[int], Counter[str]]:
    """Return how often each number is in the copy, and how many records each executor's address has."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "check", "enable.partition.eof": True}
    consumer = Consumer(settings | {"isolation.level": "read_committed"})
    places = [TopicPartition(COPY, number, OFFSET_BEGINNING) for number in range(PARTITIONS)]
    consumer.assign(places)
    numbers: Counter[int] = Counter()
    executors: Counter[str] = Counter()
    ended = 0
    while ended < PARTITIONS:
        for message in consumer.consume(10_000, timeout=1.0):
            if message.error() is not None:
                ended += 1  # the end of a partition
                continue
            numbers[int(message.value() or b"")] += 1
            executors.update(str(at, "ascii") for _, at in message.headers() or [])
    consumer.close()
    return numbers, executors


def _where(_: int) -> str:
    return os.environ[ADDRESS]


where = f.udf(_where, StringType(), useArrow=False)
"""The address of the executor that runs a task."""


def copy(spark: SparkSession, bootstrap: str, checkpoint: Path, records: int) -> Any:
    """Start the stream. Return the query."""
    servers = {"kafka.bootstrap.servers": bootstrap}
    source = spark.readStream.format("minikafka").options(**servers, subscribe=SOURCE)
    limit = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(records // MICRO_BATCHES)}
    rows = source.options(**limit, maxTasks="4").load()
    headers = "array(struct('at' AS key, cast(at AS binary) AS value)) AS headers"
    written = rows.withColumn("at", where("partition")).selectExpr("value", "partition", headers)
    sink = written.writeStream.format("minikafka").options(
        **servers, topic=COPY, exactlyOnce="true"
    )
    return (
        sink.option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .queryName("copy")
        .start()
    )


class PeakMemory:
    """Watches the Python processes on the hosts. `peaks`: the highest resident memory of a process by host, in MB."""

    def __init__(self, on: Hosts) -> None:
        self._hosts = on
        self._is_over = threading.Event()
        self.peaks: dict[int, int] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(POLL_SECONDS):
            for number in self._hosts.numbers:
                for pid in self._hosts.pids(number):
                    with suppress(OSError):
                        self._look(number, pid)

    def _look(self, number: int, pid: int) -> None:
        text = Path(f"/proc/{pid}/status").read_text()
        if text.startswith("Name:\tpython") and "VmHWM:" in text:
            peak = int(text.partition("VmHWM:")[2].split()[0]) // 1024
            self.peaks[number] = max(self.peaks.get(number, 0), peak)


def die(on: Hosts, number: int, *, is_cut: bool) -> None:
    """Cut the network of a host, or kill its processes."""
    if is_cut:
        on.plug(number, plugged=False)
        return
    for pid in on.pids(number):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_for_batches(query: Any, count: int) -> None:
    """Wait until the stream has finished this number of micro-batches. Raises the error of a query that has failed."""
    deadline = time.monotonic() + LOST_SECONDS
    while len(query.recentProgress) < count:
        if query.awaitTermination(POLL_SECONDS) or time.monotonic() > deadline:
            raise SystemExit(f"the stream made {len(query.recentProgress)} micro-batches")


def run(records: int, directory: Path, *, is_cut: bool) -> dict[str, Any]:
    """Run the stream while a host dies. Return the findings."""
    with hosts(2) as on, broker(on.gateway, directory) as bootstrap:
        fill(bootstrap, records)
        os.environ[ADDRESS] = on.gateway
        places = [Host(on.address(number), tuple(on.command(number))) for number in on.numbers]
        cluster = StandaloneSpark(directory / "spark", at=Host(on.gateway), hosts=places)
        with cluster as standalone, PeakMemory(on) as memory:
            spark = _session(standalone.master, on.gateway)
            query = copy(spark, bootstrap, directory / "checkpoint", records)
            wait_for_batches(query, BEFORE_DEATH)
            begin = time.monotonic()
            die(on, 1, is_cut=is_cut)
            wait_for_batches(query, BEFORE_DEATH + 2)
            resumed = time.monotonic() - begin
            if not query.awaitTermination(LOST_SECONDS):
                raise SystemExit("the stream has not ended")
            spark.stop()
        numbers, executors = copies(bootstrap)
    return {
        "records": records,
        "missing": records - len(numbers),
        "duplicates": sum(numbers.values()) - len(numbers),
        "rows by executor": dict(executors),
        "seconds until two more micro-batches": round(resumed, 1),
        "peak memory of a Python process by host, MB": memory.peaks,
    }


def _session(master: str, address: str) -> SparkSession:
    return session(
        "hosts",
        master,
        **{
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
            "spark.network.timeout": TIMEOUT,
            "spark.network.timeoutInterval": "5s",
            "spark.executor.heartbeatInterval": "5s",
            "spark.sql.shuffle.partitions": "2",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
            "spark.cores.max": "2",
        },
    )


def main() -> None:
    """Parse the command line, run, print the findings as JSON, and end with the verdict."""
    parser = argparse.ArgumentParser(prog="spark-hosts", description=__doc__)
    parser.add_argument("--records", type=int, default=240_000, help="default: 240,000")
    parser.add_argument("--cut", action="store_true", help="cut the host's network")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep all files in DIR")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spark-hosts-") as temporary:
        directory = options.keep or Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        found = run(options.records, directory, is_cut=options.cut)
    print(json.dumps(found, indent=2))
    is_whole = not found["missing"] and not found["duplicates"]
    raise SystemExit(0 if is_whole and len(found["rows by executor"]) == 2 else 1)


if __name__ == "__main__":
    main()
