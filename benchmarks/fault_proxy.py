"""What the proxy of a cluster with faults costs: produce and consume rates, and the time of one request, as ratios.

`python -m benchmarks.fault_proxy` runs a cluster of three brokers with faults and one without them in turn. A topic has
three replicas; records have acks=all. Each figure is the median of the rounds with the proxy, divided by that without.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from statistics import median
from typing import Final, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks import lifetime, report
from minikafka.tools.cluster import LocalCluster

TOPIC: Final = "rates"
VALUE: Final = bytes(1000)
_KEYS: Final = {"default.replication.factor": 3, "min.insync.replicas": 2}


class Rates(NamedTuple):
    """MB/s written and read, and ms from a record to its acknowledgement with one record in flight."""

    produced: float
    consumed: float
    request_ms: float


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fault_proxy", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="clusters of each kind (default: 3)")
    parser.add_argument("--records", type=int, default=100_000, help="records (default: 100,000)")
    options = parser.parse_args()
    lifetime.live_blocking(lambda: compare(options.rounds, options.records))


def compare(rounds: int, records: int) -> None:
    """Measure both kinds in turn, and print the medians and their ratios."""
    print(report.machine(), flush=True)
    found: dict[bool, list[Rates]] = {False: [], True: []}
    for _ in range(rounds):
        for faults, rows in found.items():
            with LocalCluster(3, faults=faults, config=_KEYS) as cluster:
                rows.append(measure(cluster.bootstrap, records))
    direct, through = (
        Rates(*(median(values) for values in zip(*rows, strict=True))) for rows in found.values()
    )
    for name in Rates._fields:
        one, other = getattr(direct, name), getattr(through, name)
        print(
            f"{name:11}  direct {one:8.2f}  through the proxy {other:8.2f}  ratio {other / one:.2f}"
        )


def measure(bootstrap: str, records: int) -> Rates:
    """Return the rates of one cluster."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5})
    _produce(producer, 1_000)
    megabytes = records * len(VALUE) / 1e6
    written = _seconds(lambda: _produce(producer, records))
    read = _seconds(lambda: _consume(bootstrap, records))
    single = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    _produce(single, 1)
    times = [_seconds(lambda: _produce(single, 1)) * 1000 for _ in range(200)]
    return Rates(megabytes / written, megabytes / read, median(times))


def _seconds(work: Callable[[], None]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _produce(producer: Producer, records: int) -> None:
    for _ in range(records):
        while True:
            try:
                producer.produce(TOPIC, VALUE, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
    producer.flush()


def _consume(bootstrap: str, records: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "rates"})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    left = records
    while left > 0:
        left -= len(consumer.consume(min(left, 1_000), 5))
    consumer.close()


if __name__ == "__main__":
    main()
