"""The time from a SIGKILL to the next acknowledged write, in turn with Apache Kafka 3.9.

`python -m benchmarks.failover` kills brokers of three, one after the other, while one writer per partition sends
records with acks=all and three replicas. Each kill gives two figures: for the partitions that the killed broker led,
and for the others, whose ISR contained it. A figure is the time from the kill until *every* one of these partitions has
acknowledged a record that was sent after the kill. Every second kill hits the controller. The killed broker starts
again, and the preferred leaders are elected, before the next kill. At the end every acknowledged record is read back:
the run fails if one is missing.

With the directory of Kafka's jars in MINIKAFKA_KAFKA_JARS, a cluster of Apache Kafka with the same settings takes every
kill in turn.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import uvloop

from benchmarks import kafka, lifetime, peer, report
from benchmarks.closed_loop import LoadError
from benchmarks.peer import HOST, Cluster
from minikafka.kafka.records import batch
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import ELECT_LEADERS, METADATA, PRODUCE

PRODUCE_VERSION: Final = 7
PAUSE_SECONDS: Final = 0.002
"""Pause of a writer after each record, and before it asks for the leader again."""
ANSWER_SECONDS: Final = 60.0
CALM_SECONDS: Final = 1.0
"""Time for which all partitions are written before each kill."""
KINDS: Final = ("leader", "controller and leader", "follower", "controller and follower")
"""What the killed broker was for the partitions of a figure."""


class Kill(NamedTuple):
    """The seconds until all partitions of one kind were written after one kill."""

    kind: str
    seconds: float


class Writer(threading.Thread):
    """Writes records to one partition, one at a time, and finds the new leader as fast as it can."""

    def __init__(self, topic: str, number: int, brokers: Sequence[tuple[str, int]]) -> None:
        super().__init__(daemon=True)
        self.topic, self.number, self.brokers = topic, number, brokers
        self.acked: dict[int, bytes] = {}
        """Offset -> value of every acknowledged record."""
        self._first_after: tuple[float, threading.Event] | None = None
        self.first_ack = 0.0
        self._ended = threading.Event()
        self.may_write = threading.Event()
        """Cleared while the other cluster is measured."""
        self._sent = 0

    def expect(self, moment: float) -> threading.Event:
        """Return an event that is set at the first acknowledgement of a record sent after `moment`."""
        done = threading.Event()
        self._first_after = (moment, done)
        return done

    def end(self) -> None:
        """Send no further record, and wait for the last answer."""
        self._ended.set()
        self.may_write.set()
        self.join(ANSWER_SECONDS)

    def run(self) -> None:
        turn = self.number
        while not self._ended.is_set():
            turn += 1
            self.may_write.wait()
            with suppress(OSError, LoadError, KeyError, StopIteration):
                self._write_to_leader(self.brokers[turn % len(self.brokers)])
            time.sleep(PAUSE_SECONDS)

    def _write_to_leader(self, asked: tuple[str, int]) -> None:
        """Write to the leader that the broker at `asked` names, until an error."""
        with kafka.Session(*asked) as session:
            metadata = session.ask(METADATA, 1, topics=[{"name": self.topic}])
        addresses = {broker.node_id: (broker.host, broker.port) for broker in metadata.brokers}
        rows = {row.partition_index: row.leader_id for row in metadata.topics[0].partitions}
        with kafka.Session(*addresses[rows[self.number]]) as session:
            session.socket.settimeout(ANSWER_SECONDS)
            while self.may_write.is_set() and not self._ended.is_set():
                self._write(session)
                time.sleep(PAUSE_SECONDS)

    def _write(self, session: kafka.Session) -> None:
        value = b"%d-%d" % (self.number, self._sent)
        self._sent += 1
        data = batch.build([batch.Record(0, 0, None, value, ())])
        sent = time.monotonic()
        session.socket.sendall(
            kafka.produce_request(PRODUCE_VERSION, self.topic, self.number, data, 1)
        )
        answer = codec.decode_response(PRODUCE, PRODUCE_VERSION, session.receive())
        row = answer.responses[0].partition_responses[0]
        if row.error_code:
            raise LoadError(f"error {row.error_code}")
        self.acked[row.base_offset] = value
        if self._first_after is not None and sent > self._first_after[0]:
            self.first_ack = time.monotonic()
            self._first_after[1].set()
            self._first_after = None


class Run:
    """The kills of one cluster."""

    def __init__(self, cluster: Cluster, partitions: int) -> None:
        self.cluster, self.partitions = cluster, partitions
        self.topic = f"failover-{time.monotonic_ns()}"
        self.kills: list[Kill] = []
        self._brokers = [(HOST, port) for port in cluster.ports.values()]
        self._writers: list[Writer] = []

    async def start(self) -> None:
        """Create the topic and start its writers."""
        await peer.create_topic(self.cluster, self.topic, self.partitions)
        self._writers = [
            Writer(self.topic, number, self._brokers) for number in range(self.partitions)
        ]
        for writer in self._writers:
            writer.start()

    async def kill(self, *, controller: bool) -> None:
        """Kill one broker, take the figures, and bring the broker back."""
        self._let_write(True)
        await asyncio.sleep(CALM_SECONDS)
        view = await peer.in_thread(self._view)
        others = [broker for broker in self.cluster.ports if broker != view.controller_id]
        victim = view.controller_id if controller else others[len(self.kills) // 2 % len(others)]
        led = {row.partition_index for row in view.topics[0].partitions if row.leader_id == victim}
        moment = time.monotonic()
        events = [writer.expect(moment) for writer in self._writers]
        await self.cluster.kill(victim)
        await peer.in_thread(partial(_wait_for, events))
        for kind, numbers in (("leader", led), ("follower", set(range(self.partitions)) - led)):
            if numbers:
                last = max(self._writers[number].first_ack for number in numbers)
                name = f"controller and {kind}" if controller else kind
                self.kills.append(Kill(name, last - moment))
        await self.cluster.start_again(victim)
        await peer.wait_until(
            partial(peer.serves, self.cluster),
            peer.START_SECONDS,
            f"broker {victim} did not restart",
        )
        await peer.in_thread(partial(kafka.leaders_of, self._brokers[0], self.topic))
        await peer.in_thread(self._elect_preferred)
        self._let_write(False)

    def _let_write(self, may_write: bool) -> None:
        for writer in self._writers:
            if may_write:
                writer.may_write.set()
            else:
                writer.may_write.clear()

    def _view(self) -> Any:
        with kafka.Session(*self._brokers[0]) as session:
            return session.ask(METADATA, 1, topics=[{"name": self.topic}])

    def _elect_preferred(self) -> None:
        """Let the first replica of each partition lead it again, and wait until the metadata shows it."""
        view = self._view()
        addresses = {broker.node_id: (broker.host, broker.port) for broker in view.brokers}
        with kafka.Session(*addresses[view.controller_id]) as session:
            session.ask(ELECT_LEADERS, 1, election_type=0, topic_partitions=None, timeout_ms=30_000)
        deadline = time.monotonic() + peer.START_SECONDS
        while any(
            row.leader_id != row.replica_nodes[0] for row in self._view().topics[0].partitions
        ):
            if time.monotonic() > deadline:
                raise LoadError("the preferred replicas do not lead")
            time.sleep(peer.POLL_SECONDS)

    async def verify(self) -> int:
        """End the writers, read the topic, and return the number of acknowledged records. Raises LoadError."""
        for writer in self._writers:
            await peer.in_thread(writer.end)
        for writer in self._writers:
            await peer.in_thread(partial(_verify, self._brokers, self.topic, writer))
        return sum(len(writer.acked) for writer in self._writers)


def _wait_for(events: Iterable[threading.Event]) -> None:
    for event in events:
        if not event.wait(ANSWER_SECONDS):
            raise LoadError(f"a partition was not written within {ANSWER_SECONDS:g} s of a kill")


def _verify(brokers: Sequence[tuple[str, int]], topic: str, writer: Writer) -> None:
    """Read one partition, and raise LoadError unless each acknowledged value is at its offset."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(f"{host}:{port}" for host, port in brokers),
            "group.id": topic,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, writer.number, 0)])
    missing = dict(writer.acked)
    while missing:
        message = consumer.poll(ANSWER_SECONDS)
        if message is None:
            break
        offset = message.offset()
        if not message.error() and offset is not None and missing.get(offset) == message.value():
            del missing[offset]
    consumer.close()
    if missing:
        raise LoadError(f"{len(missing)} acknowledged records of {topic}-{writer.number} are lost")


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.failover", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="kills of each cluster (default: 20)")
    parser.add_argument("--partitions", type=int, default=6, help="partitions (default: 6)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="append a line of results to FILE"
    )
    options = parser.parse_args()
    jars = peer.kafka_jars() if os.environ.get(peer.JARS) else None
    lifetime.live(compare(jars, options.kills, options.partitions, options.json), uvloop.run)


async def compare(jars: str | None, kills: int, partitions: int, kept: Path | None) -> None:
    """Kill brokers of all clusters in turn, print the table, and append the results to the file `kept`."""
    print(report.machine(), flush=True)
    with tempfile.TemporaryDirectory(prefix="failover-") as directory:
        clusters: list[Cluster] = [peer.Minikafka()]
        if jars is not None:
            clusters.append(peer.ApacheKafka(jars, Path(directory)))
        async with peer.started(clusters, {cluster.name: {} for cluster in clusters}):
            runs = [Run(cluster, partitions) for cluster in clusters]
            for run in runs:
                await run.start()
            for number in range(kills):
                for run in runs:
                    await run.kill(controller=number % 2 == 1)
                if sys.stderr.isatty():
                    print(f"\r{number + 1} of {kills} kills", end="", file=sys.stderr, flush=True)
            for run in runs:
                count = await run.verify()
                print(f"\n{run.cluster.name}: {count:,} acknowledged records, none lost")
                show(run.kills)
    if kept is not None:
        facts = {run.cluster.name: _by_kind(run.kills) for run in runs}
        report.append(kept, {"machine": report.machine(), "failover": facts})


def show(kills: Sequence[Kill]) -> None:
    """Print the quantiles of each kind in milliseconds."""
    print(f"{'the killed broker was':26} {'kills':>6} {'median':>8} {'95 %':>8} {'most':>8}   ms")
    for kind, seconds in _by_kind(kills).items():
        figures = (_quantile(seconds, share) * 1000 for share in (0.5, 0.95, 1.0))
        median, high, most = (f"{figure:8,.0f}" for figure in figures)
        print(f"{kind:26} {len(seconds):6} {median} {high} {most}")


def _by_kind(kills: Iterable[Kill]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for kill in kills:
        found.setdefault(kill.kind, []).append(round(kill.seconds, 4))
    return {kind: found[kind] for kind in KINDS if kind in found}


def _quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


if __name__ == "__main__":
    main()
