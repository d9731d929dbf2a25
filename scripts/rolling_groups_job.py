"""Rolling restarts under consumer groups: restarts every broker in turn while groups commit, then checks every commit.

    rolling-groups [--rounds N] [--groups N]

Each group is one librdkafka consumer, which commits after every record and waits for the response. The exit code is
0 only if no acknowledged commit was lost or replaced by an older commit, every group processed every record, and no
group rebalanced.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections.abc import Sequence

import endings
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from load import create_topic
from threads import in_thread

from minikafka.tools.cli.execution.running import run_cancellable
from minikafka.tools.cluster import LocalCluster

TOPIC = "work"
BROKERS = 3
CONFIG = {"zookeeper.session.timeout.ms": 6_000, "offsets.topic.num.partitions": 50}
SESSION_MS = 30_000
QUIET_SECONDS = 2.0
RECORDS_PER_SECOND = 20
DRAIN_SECONDS = 60.0
START_SECONDS = 60.0
"""Time limit for the first acknowledged commit of each group, and for the end of a consumer."""


class Group:
    """A group of one consumer, which runs in a separate thread. `problems`: a text for each violation."""

    def __init__(self, bootstrap: str, number: int) -> None:
        self.name = f"group-{number}"
        self.processed: set[int] = set()
        self.acked = 0
        """The highest offset in an acknowledged commit."""
        self.commits = 0
        self.failed_commits = 0
        self.assignments = 0
        self.problems: list[str] = []
        self.begun = threading.Event()
        """Set after the first acknowledged commit."""
        self._stop = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
                "log_level": 2,
            }
        )
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._consume()
        except KafkaException as error:
            # Without this, the failure would not be reported, and `wait_begun` would wait until its time limit.
            self.problems.append(f"{self.name}: its consumer failed: {error}")
            self.begun.set()

    def _consume(self) -> None:
        self._consumer.subscribe([TOPIC], on_assign=self._assigned)
        while not self._stop.is_set():
            message = self._consumer.poll(0.1)
            if message is None or message.error() is not None:
                continue
            self.processed.add(int(message.value()))
            self._commit(message.offset() + 1)

    def _assigned(self, consumer: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self.assignments += 1
        (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)
        if max(found.offset, 0) < self.acked:
            text = f"committed offset {found.offset}, but {self.acked} was acknowledged before"
            self.problems.append(f"{self.name}: {text}")

    def _commit(self, offset: int) -> None:
        try:
            self._consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        except KafkaException:
            self.failed_commits += 1
        else:
            self.commits += 1
            self.acked = max(self.acked, offset)
            self.begun.set()

    def wait_begun(self) -> None:
        """Wait for the first acknowledged commit. Raises RuntimeError on failure and after `START_SECONDS`."""
        if not self.begun.wait(START_SECONDS):
            raise RuntimeError(
                f"{self.name}: no acknowledged commit after {START_SECONDS:g} s "
                f"({self.assignments} assignments, {self.failed_commits} commits refused)"
            )
        if self.problems:
            raise RuntimeError(self.problems[0])

    def finish(self, records: int) -> None:
        """Wait until every record is processed, at most `DRAIN_SECONDS`, and stop the consumer.

        Then check the committed offset, the processed records and the number of assignments. Add a text to
        `problems` for each wrong value. Raises KafkaException.
        """
        end = time.monotonic() + DRAIN_SECONDS
        while len(self.processed) < records and self._thread.is_alive() and time.monotonic() < end:
            time.sleep(0.05)
        self._stop.set()
        self._thread.join(START_SECONDS)
        if self._thread.is_alive():
            self.problems.append(
                f"{self.name}: its consumer still polls or commits {START_SECONDS:g} s after the end"
            )
            return
        (found,) = self._consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)
        self._consumer.close()
        if found.offset < self.acked:
            self.problems.append(
                f"{self.name}: committed offset {found.offset}, but {self.acked} was acknowledged"
            )
        if len(self.processed) != records:
            self.problems.append(f"{self.name}: processed {len(self.processed)} of {records}")
        if self.assignments != 1:
            self.problems.append(f"{self.name}: {self.assignments} assignments instead of one")


def main() -> bool:
    """Parse the command line and run the restarts. Return True if there are no problems."""
    parser = argparse.ArgumentParser(
        prog="rolling-groups", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--rounds", type=int, default=3, help="restarts of every broker (3)")
    parser.add_argument("--groups", type=int, default=20, help="number of groups (20)")
    arguments = parser.parse_args(sys.argv[1:])
    return run_cancellable(roll(arguments.rounds, arguments.groups))


async def roll(rounds: int, count: int) -> bool:
    """Restart every broker `rounds` times while the groups commit, and print the verdict."""
    async with LocalCluster(BROKERS, config=CONFIG) as cluster:
        await in_thread(create_topic, cluster.bootstrap, TOPIC, 1, {})
        groups = [Group(cluster.bootstrap, number) for number in range(count)]
        stop = threading.Event()
        producing = asyncio.create_task(asyncio.to_thread(produce, cluster.bootstrap, stop))
        try:
            await asyncio.gather(*(asyncio.to_thread(group.wait_begun) for group in groups))
            for turn in range(rounds):
                for broker in range(1, BROKERS + 1):
                    await cluster.restart(broker)
                    await asyncio.sleep(QUIET_SECONDS)
                    print(f"round {turn + 1}: broker {broker} was restarted", flush=True)
        finally:
            stop.set()
            records = await producing
            await asyncio.gather(*(asyncio.to_thread(group.finish, records) for group in groups))
    return verdict(groups, records)


def produce(bootstrap: str, stop: threading.Event) -> int:
    """Produce records with the values 0, 1, 2, … until `stop` is set. Return the number of records."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 2}
    )
    number = 0
    while not stop.is_set():
        producer.produce(TOPIC, b"%d" % number)
        producer.poll(1 / RECORDS_PER_SECOND)
        number += 1
    if producer.flush(DRAIN_SECONDS):
        raise RuntimeError("not every record was acknowledged")
    return number


def verdict(groups: Sequence[Group], records: int) -> bool:
    """Print the counts and the problems. Return True if there are no problems."""
    commits = sum(group.commits for group in groups)
    failed = sum(group.failed_commits for group in groups)
    problems = [problem for group in groups for problem in group.problems]
    print(
        f"{records} records, {len(groups)} groups, {commits} commits acknowledged, {failed} commits refused"
    )
    print("\n".join(problems) or "no acknowledged commit was lost, no group rebalanced")
    return not problems


if __name__ == "__main__":
    endings.run("rolling-groups", main)
