"""`python -m benchmarks.spark_memory`: the memory of Spark's Python workers for large partitions.

Each job has one task, for one partition of records of 1 KB or of 1 MB, uncompressed or with lz4. It writes the
partition (also with `exactlyOnce`), reads it as a batch, and reads it as one micro-batch of a stream. The figure is the
largest resident memory of a Python process of Spark during the job. The run fails if a partition of ten times the size
takes more than `SPREAD_MB` more.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from benchmarks import report
from minikafka.spark.session import session
from minikafka.tools.cluster import LocalCluster

SPREAD_MB: Final = 100
POLL_S: Final = 0.05
_STATE: Final = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
_RECORDS: Final = {"1 KB": 8, "1 MB": 7_800}
"""How often a record repeats a text of 128 bytes."""


def workers() -> Iterator[Path]:
    """Yield the directory in /proc of each Python process that Spark has started for this process."""
    parents: dict[int, int] = {}
    pythons = []
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, IndexError):
            pid = int(directory.name)
            name, _, rest = (directory / "stat").read_text().partition("(")[2].rpartition(")")
            parents[pid] = int(rest.split()[1])
            command = (directory / "cmdline").read_bytes()
            if name.startswith("python") and (
                b"pyspark" in command or b"minikafka.spark" in command
            ):
                pythons.append(directory)
    for directory in pythons:
        pid = int(directory.name)
        while (pid := parents.get(pid, 0)) > 1:
            if pid == os.getpid():
                yield directory
                break


class Peak:
    """Watches the workers while the `with` body runs. `mb`: the largest resident memory of one of them."""

    def __init__(self) -> None:
        self.mb = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Peak:
        for worker in workers():
            with suppress(OSError):
                (worker / "clear_refs").write_text("5")  # its peak becomes its current memory
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        while not self._is_over.wait(POLL_S):
            self._look()

    def _look(self) -> None:
        for worker in workers():
            with suppress(OSError):
                _, _, found = (worker / "status").read_text().partition("VmHWM:")
                self.mb = max(self.mb, int(found.split()[0]) // 1024 if found else 0)


class Jobs:
    """The jobs on one topic with one partition. `repeats`: see `_RECORDS`."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, codec: str) -> None:
        self._spark = spark
        self._topic = topic
        self._servers = {"kafka.bootstrap.servers": bootstrap}
        self._codec = codec

    def write(self, rows: DataFrame, topic: str, **options: str) -> None:
        """Write rows to a topic, which the brokers create."""
        given = {"topic": topic, "createTopics": "true", "kafka.compression.type": self._codec}
        writer = rows.write.format("minikafka").mode("append")
        writer.options(**self._servers, **given, **options).save()

    def read(self) -> None:
        """Read the topic as a batch."""
        frame = self._spark.read.format("minikafka").options(**self._servers)
        frame.option("subscribe", self._topic).load().write.format("noop").mode("append").save()

    def stream(self) -> None:
        """Read the topic as one micro-batch."""
        frame = self._spark.readStream.format("minikafka").options(**self._servers)
        rows = frame.options(subscribe=self._topic, startingOffsets="earliest").load()
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
            writer.trigger(availableNow=True).start().awaitTermination()

    def all(self, rows: DataFrame) -> Iterator[tuple[str, Callable[[], None]]]:
        """Yield each job with its name. `rows`: the rows to write."""
        yield "write", lambda: self.write(rows, self._topic)
        yield (
            "write exactly once",
            lambda: self.write(rows, f"{self._topic}-once", exactlyOnce="true"),
        )
        yield "read as a batch", self.read
        yield "read as a stream", self.stream


def measure(spark: SparkSession, bootstrap: str, megabytes: int) -> dict[str, int]:
    """Return the peak memory in MB of each job with a partition of this size."""
    found = {}
    for size, repeats in _RECORDS.items():
        count = megabytes * 1_000_000 // (repeats * 128)
        value = f.expr(f"repeat(sha2(cast(id as string), 512), {repeats})").alias("value")
        rows = spark.range(0, count, 1, 1).select(value)
        for codec in ("none", "lz4"):
            topic = f"memory-{repeats}-{codec}-{megabytes}"
            for job, run in Jobs(spark, bootstrap, topic, codec).all(rows):
                with Peak() as peak:
                    run()
                found[f"{size}, {codec}, {job}"] = peak.mb
                print(f"{megabytes} MB of {size}, {codec}, {job}: {peak.mb} MB", flush=True)
    return found


@contextmanager
def measured_session() -> Iterator[tuple[SparkSession, str]]:
    """Yield a session with one core, and the address of a broker."""
    with LocalCluster(1, config={"num.partitions": 1, **_STATE}) as cluster:
        spark = session("memory", "local[1]", **{"spark.driver.memory": "2g"})
        yield spark, cluster.bootstrap
        spark.stop()


def main() -> None:
    """Parse the command line, measure, and end with the verdict."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_memory", description=__doc__)
    parser.add_argument(
        "--megabytes", type=int, default=200, help="the smaller size (default: 200)"
    )
    options = parser.parse_args()
    print(report.machine(), flush=True)
    with measured_session() as (spark, bootstrap):
        measure(spark, bootstrap, 1)  # the workers import their modules
        small, large = (
            measure(spark, bootstrap, size) for size in (options.megabytes, 10 * options.megabytes)
        )
    grown = {name: large[name] - small[name] for name in small}
    worst = max(grown, key=grown.__getitem__)
    print(f"most: {max(large.values())} MB; largest growth: {grown[worst]} MB ({worst})")
    raise SystemExit(0 if grown[worst] <= SPREAD_MB else 1)


if __name__ == "__main__":
    main()
