"""`python -m benchmarks.spark_short`: short Spark jobs next to Spark's own connector, also on a busy machine.

Each round runs a query with minikafka, with the connector and with a Python source of prepared rows
(`spark_floor.py`), in one session with the master `local[2]`, so a ratio is that of two neighbours. All read from one
broker of minikafka, or with `--bootstrap` from another cluster, in new topics `short-…`. The prepared rows show the
highest ratio that a Python data source can reach. The first two rounds are not counted. `--busy N` meanwhile runs N
processes that only compute; two for each processor make a busy machine. MINIKAFKA_SPARK_KAFKA_JARS must name a
directory with the connector's jars.

- short: streams of 1 and 6 million lz4 records with the trigger `availableNow`, to a count and to Parquet; batches of
  2 million records to a count and to Parquet; writes of 600 rows.
- growth: streams to a count, of 1 to 8 million records in 6 partitions, and of a million records in 6, 50 and 200.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from benchmarks import report
from benchmarks.spark_floor import ReadyRows
from benchmarks.spark_rates import (
    CONNECTOR,
    JARS,
    OURS,
    PARTITIONS,
    READY,
    SERVERS,
    Jobs,
    Topic,
    fill,
)
from minikafka.spark.session import session
from minikafka.tools.cluster import LocalCluster

_WARM_ROUNDS: Final = 2
_TARGETS: Final = {
    "stream of 1 million to a count": 1.3,
    "stream of 1 million to Parquet": 1.3,
    "stream of 6 million to a count": 2.0,
    "stream of 6 million to Parquet": 2.0,
    "batch of 2 million to a count": 3.0,
    "batch of 2 million to Parquet": 2.0,
    "write of 600 rows": 0.95,
}
"""The connector's time divided by minikafka's, at least."""
Times = dict[str, list[float]]
"""Seconds of each round, by data source."""
Query = Callable[[Jobs, str], Any]


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Run processes that only compute."""
    started = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)
    ]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


def in_turn(query: Callable[[str], Any], rounds: int) -> Times:
    """Return the times of `query(name)` with each data source in turn."""
    times: Times = {OURS: [], CONNECTOR: [], READY: []}
    for turn in range(-_WARM_ROUNDS, rounds):
        for name, found in times.items():
            begin = time.perf_counter()
            query(name)
            spent = time.perf_counter() - begin
            if turn >= 0:
                found.append(spent)
    return times


def show(title: str, times: Times) -> None:
    """Print the median times, and how many times as fast minikafka and the prepared rows are as the connector.

    The ratio of minikafka is the median of the rounds, with the lowest and the highest.
    """
    ours, theirs, ready = (statistics.median(times[name]) for name in (OURS, CONNECTOR, READY))
    each = _ratios(times, OURS)
    target = f"   target {_TARGETS[title]}x" if title in _TARGETS else ""
    print(
        f"{title:42} {ours:6.2f} s   connector {theirs:6.2f} s   {statistics.median(each):.2f}x"
        f" ({min(each):.2f} to {max(each):.2f})   prepared rows {ready:6.2f} s"
        f"   {statistics.median(_ratios(times, READY)):.2f}x{target}",
        flush=True,
    )


def _ratios(times: Times, name: str) -> list[float]:
    """Return the connector's time divided by that of a source, in each round."""
    return [theirs / own for theirs, own in zip(times[CONNECTOR], times[name], strict=True)]


class Bench:
    """The measurements in one session. `rounds`: those counted."""

    def __init__(self, spark: SparkSession, bootstrap: str, rounds: int, directory: Path) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._rounds = rounds
        self._directory = directory
        self._topics: dict[str, Topic] = {}
        self.figures: dict[str, Times] = {}

    def short(self, records: int) -> None:
        """Measure streams and batches of some millions of records, and small writes. `records`: a million."""
        for millions in (1, 6):
            topic = self._filled(millions * records, PARTITIONS)
            for sink, stream in (("a count", Jobs.stream_count), ("Parquet", Jobs.stream_parquet)):
                self._measure(f"stream of {millions} million to {sink}", topic, stream)
        topic = self._filled(2 * records, PARTITIONS)
        for sink, query in (("a count", Jobs.count), ("Parquet", Jobs.parquet)):
            self._measure(f"batch of 2 million to {sink}", topic, query)
        written = self._filled(PARTITIONS, PARTITIONS)
        self._measure("write of 600 rows", written, partial(_write, written))

    def growth(self, records: int) -> None:
        """Measure streams of growing numbers of records and of partitions."""
        sizes = [(millions, PARTITIONS) for millions in (1, 2, 4, 8)]
        for millions, partitions in (*sizes, (1, 50), (1, 200)):
            topic = self._filled(millions * records, partitions)
            title = f"stream of {millions} million in {partitions} partitions"
            self._measure(title, topic, Jobs.stream_count)

    def _filled(self, records: int, partitions: int) -> Topic:
        """Return a topic with this number of records in lz4 batches."""
        name = f"short-{records}-{partitions}"
        if name not in self._topics:
            count = records // partitions * partitions
            self._topics[name] = Topic(name, "lz4", 1_000, count, partitions)
            fill(self._bootstrap, name, self._topics[name])
        return self._topics[name]

    def _measure(self, title: str, topic: Topic, query: Query) -> None:
        given = {SERVERS: self._bootstrap, "subscribe": topic.name}
        ready = {
            SERVERS: self._bootstrap,
            "rows": str(topic.records),
            "partitions": str(topic.partitions),
        }
        jobs = {
            name: Jobs(self._spark, ready if name == READY else given, self._directory)
            for name in (OURS, CONNECTOR, READY)
        }
        self.figures[title] = in_turn(lambda name: query(jobs[name], name), self._rounds)
        show(title, self.figures[title])


@contextmanager
def _bootstrap(given: str | None) -> Iterator[str]:
    """Yield the bootstrap servers of the cluster `given`, or of a new one with one broker."""
    if given:
        yield given
        return
    with LocalCluster(1, config={"zookeeper.session.timeout.ms": 6_000}) as cluster:
        yield cluster.bootstrap


def _write(topic: Topic, jobs: Jobs, name: str) -> None:
    jobs.write(name, topic.name, "none", 600)


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark_short", description=__doc__)
    parser.add_argument("--only", choices=("short", "growth"), help="run only this part")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (default: 5)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the number of records (default: 1)"
    )
    parser.add_argument(
        "--busy", type=int, default=0, help="processes that only compute (default: 0)"
    )
    parser.add_argument(
        "--bootstrap", help="a running cluster to use, such as 127.0.0.1:9092 (default: a new one)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="append the results to FILE")
    options = parser.parse_args()
    jars = ",".join(sorted(map(str, Path(os.environ.get(JARS) or os.devnull).glob("*.jar"))))
    if not jars:
        parser.error(f"{JARS} must name a directory with the jars of Spark's Kafka connector")
    machine = f"{report.machine()}, {options.busy} busy processes"
    print(machine, flush=True)
    with (
        _bootstrap(options.bootstrap) as bootstrap,
        tempfile.TemporaryDirectory(prefix="spark-short-") as directory,
        busy(options.busy),
    ):
        spark = session("short", "local[2]", spark_jars=jars)
        spark.dataSource.register(ReadyRows)
        bench = Bench(spark, bootstrap, options.rounds, Path(directory))
        for name, measure in (("short", bench.short), ("growth", bench.growth)):
            if options.only in (None, name):
                measure(int(1_000_000 * options.scale))
        spark.stop()
    if options.json is not None:
        report.append(options.json, {"machine": machine, "spark_short": bench.figures})


if __name__ == "__main__":
    main()
