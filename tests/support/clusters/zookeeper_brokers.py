"""Whole brokers in the test's process, with real sockets and disks and Apache ZooKeeper.

The brokers are started by the same code as `minikafka broker`, but in the test's process. `die` ends a broker without
a controlled shutdown: its session ends while it still leads partitions. The broker closes its session and its files,
so that `die` only imitates a death: a test that calls it does not have the level REAL.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from support.ledger.invariants import violations
from support.rows import proof

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import NoNode
from minikafka.base.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Znode
from minikafka.base.zookeeper import SESSION_FILE
from minikafka.broker.broker import BrokerServer
from minikafka.broker.ledger.reader import Line, read_all
from minikafka.broker.ledger.writer import directory_of
from minikafka.client import Client, NewTopic
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.runtime.tasks import TaskRegistry
from minikafka.runtime.transport import SocketTransport
from minikafka.tools.cli.foreground import broker_process
from minikafka.tools.cluster.ports import free_ports
from minikafka.zookeeper.client.client import ZooKeeperClient
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.processes.apache import ApacheZooKeeper

KEYS = {
    "zookeeper.session.timeout.ms": 6_000,
    "replica.lag.time.max.ms": 1_000,
    "auto.leader.rebalance.enable": False,
    "controlled.shutdown.max.retries": 1,
    "controlled.shutdown.retry.backoff.ms": 50,
    "replica.high.watermark.checkpoint.interval.ms": 100,
    "log.segment.delete.delay.ms": 50,
    "replica.fetch.backoff.ms": 50,
    "num.partitions": 2,
}
WAIT_SECONDS = 20


class ZooKeeperBrokers:
    """A cluster of brokers with the given ids, as an async context manager. `observer` is the test's own session.

    `connect`: host:port/chroot of a running ZooKeeper server. `data`: an empty directory for the brokers' logs.
    """

    def __init__(self, connect: str, data: Path, ids: range, **config: object) -> None:
        self.connect = connect
        self.server, _, root = connect.partition("/")
        self.root = f"/{root}"
        self.data = data
        self.config = KEYS | {key.replace("_", "."): value for key, value in config.items()}
        ports = free_ports(len(ids), SystemRng())
        self.ports = dict(zip(ids, ports, strict=True))
        self.brokers: dict[int, BrokerServer] = {}
        self.crashes: list[tuple[str, Exception]] = []
        self._tasks = TaskRegistry()
        self.observer = ZooKeeperClient(
            connect, 10_000, SystemClock(), SystemRng(), self._tasks, SocketTransport()
        )

    async def __aenter__(self) -> ZooKeeperBrokers:
        proof.note(proof.Level.REAL)
        await self.observer.start()
        for number in self.ports:
            await self.start(number)
        await eventually(self._brokers_know_each_other, "every broker knows all brokers")
        return self

    async def __aexit__(self, *_: object) -> None:
        for number in list(self.brokers):
            await self._end(number)
        await self.observer.close()
        await self._tasks.close()
        assert self.crashes == []
        assert violations(self.history()) == []

    async def _brokers_know_each_other(self) -> bool:
        known = [broker.metadata.brokers.keys() for broker in self.brokers.values()]
        return all(self.brokers.keys() <= ids for ids in known)

    async def start(self, number: int) -> BrokerServer:
        """Start a broker, for the first time or again with the same port and data."""
        config = BrokerConfig.from_mapping(
            {
                "broker.id": number,
                "log.dirs": self.log_dir(number),
                "listeners": f"PLAINTEXT://127.0.0.1:{self.ports[number]}",
                "zookeeper.connect": self.connect,
                "minikafka.cluster.secret": "a secret of tests",
                **self.config,
            }
        )
        crashed = lambda name, error: self.crashes.append((name, error))  # noqa: E731
        broker = self.brokers[number] = await broker_process.start(config, crashed)
        return broker

    async def stop(self, number: int) -> None:
        """Shut a broker down in a controlled way."""
        await self.brokers.pop(number).shutdown()

    async def die(self, number: int) -> None:
        """End a broker without a controlled shutdown."""
        proof.note_imitated_death()
        await self._end(number)

    async def _end(self, number: int) -> None:
        await self.brokers.pop(number).shutdown(controlled=False)

    async def create(self, topic: str, assignment: Mapping[int, tuple[int, ...]]) -> None:
        """Create a topic; wait until every replica is in sync and the controller is idle."""
        async with self.client() as client:
            await client.create_topics(NewTopic(topic, assignment=assignment))
        await self.in_sync(topic)
        await self.settled()

    # Inspection.

    def log_dir(self, number: int) -> str:
        return str(self.data / f"broker-{number}")

    def directories(self, number: int, topic: str) -> list[str]:
        """Return the names of the broker's replica directories of the topic, including deletions in progress."""
        found = Path(self.log_dir(number)).glob(f"{topic}-*")
        return sorted(path.name for path in found if path.is_dir())

    def history(self) -> list[Line]:
        """Return the ledger lines of all brokers so far, merged."""
        return read_all([Path(directory_of(self.log_dir(number))) for number in self.ports])

    @property
    def controller(self) -> BrokerServer:
        """The broker that is the active controller."""
        (active,) = [b for b in self.brokers.values() if b.capabilities.diagnostics.is_active]
        return active

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def client(self, **timeouts: int) -> Client:
        return Client(self.bootstrap, **timeouts)

    def client_of(self, number: int) -> Client:
        """Return a client whose only bootstrap server is this broker."""
        return Client(f"127.0.0.1:{self.ports[number]}")

    def session(self, number: int) -> tuple[int, bytes]:
        """Return (id, password) of the broker's ZooKeeper session, from the broker's session file."""
        note = json.loads((Path(self.log_dir(number)) / SESSION_FILE).read_text())
        return note["id"], bytes.fromhex(note["password"])

    async def watched(self, server: ApacheZooKeeper) -> list[str]:
        """Return all watched paths of this cluster at the server, including the chroot."""
        answer = await server.four_letter_word("wchp", 20_000)
        return [line for line in answer.splitlines() if line.startswith(self.root + "/")]

    async def data_watches_of_a_term(self, server: ApacheZooKeeper) -> list[str]:
        """Return the paths that only the controller watches: all watched paths except /controller and /config*."""
        paths = [path.removeprefix(self.root) for path in await self.watched(server)]
        return [
            path for path in paths if path != layout.CONTROLLER and not path.startswith("/config")
        ]

    async def node(self, path: str) -> Znode | None:
        """Return data and Stat of a znode, None if the znode does not exist."""
        try:
            return await self.observer.get(path)
        except NoNode:
            return None

    async def json(self, path: str) -> Any:
        """Return the decoded JSON of a znode. Raises NoNode."""
        data, _ = await self.observer.get(path)
        return json.loads(data)

    async def state(self, tp: TopicPartition) -> LeaderAndIsr | None:
        """Return the partition's leader and ISR in ZooKeeper, None if the state node does not exist."""
        node = await self.node(layout.state_path(tp))
        return None if node is None else layout.decode_state(node.data, node.stat.version)

    async def assignment(self, tp: TopicPartition) -> ReplicaAssignment | None:
        """Return the partition's replica assignment in ZooKeeper, None if it has none."""
        node = await self.node(layout.topic_path(tp.topic))
        return None if node is None else layout.decode_topic(node[0])[1].get(tp.partition)

    async def has_state(self, tp: TopicPartition, leader: int, *isr: int) -> LeaderAndIsr:
        """Wait until the partition has this leader and exactly these ISR members in ZooKeeper; return the state."""

        async def found() -> LeaderAndIsr | None:
            state = await self.state(tp)
            fits = state is not None and state.leader == leader and set(state.isr) == set(isr)
            return state if fits else None

        return await eventually(found, f"{tp} led by {leader} with ISR {isr}")

    async def in_sync(self, topic: str) -> None:
        """Wait until every replica of the topic is in the ISR."""

        async def all_are() -> bool:
            _, assignment = layout.decode_topic(
                (await self.observer.get(layout.topic_path(topic)))[0]
            )
            states = {n: await self.state(TopicPartition(topic, n)) for n in assignment}
            return all(
                state is not None and set(state.isr) == set(assignment[n].replicas)
                for n, state in states.items()
            )

        await eventually(all_are, f"{topic} is in sync")

    async def gone(self, path: str) -> None:
        """Wait until the znode does not exist."""

        async def is_gone() -> bool:
            return await self.observer.exists(path) is None

        await eventually(is_gone, f"{path} is gone")

    async def settled(self) -> None:
        """Wait until there is one controller, its event queue is empty, and brokers have answered all its requests."""

        async def is_settled() -> bool:
            active = [b for b in self.brokers.values() if b.capabilities.diagnostics.is_active]
            if len(active) != 1:
                return False
            shown = active[0].capabilities.diagnostics.summary()
            waiting = active[0].capabilities.diagnostics.backlog()
            return (
                shown.get("state") == "Idle"
                and not shown["queue_size"]
                and not any(waiting.values())
            )

        await eventually(is_settled, "the controller is idle")


async def eventually(condition: Callable[[], Any], what: str) -> Any:
    """Poll until the condition returns a true value; return it. Raises AssertionError (with `what`) after a timeout."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while not (value := await condition()):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not within {WAIT_SECONDS} s: {what}") from None
    return value


NewCluster = Callable[..., ZooKeeperBrokers]
"""A function that makes a cluster of N brokers. Keyword arguments are configuration keys, with `_` for `.`."""


class Story:
    """Ledger lines, with methods that return the controller's decisions, writes and requests as short texts."""

    def __init__(self, lines: list[Line]) -> None:
        self.lines = lines

    def since(self, earlier: Story) -> Story:
        """Return a `Story` of only the ledger lines that are not in `earlier`."""
        known = {(line["broker"], line["n"]) for line in earlier.lines}
        return Story([line for line in self.lines if (line["broker"], line["n"]) not in known])

    def because_of(self, event: str) -> Story:
        """Return a `Story` of all lines that events of this name caused."""
        causes = {line["cause"] for line in self.lines if line.get("event") == event}
        return Story([line for line in self.lines if line["cause"] in causes])

    def about(self, tp: TopicPartition) -> Story:
        """Return the story of the decisions about one partition."""
        return Story(
            [
                line
                for line in self.of("decision")
                if tp.partition in line["partitions"].get(tp.topic, ())
            ]
        )

    def of(self, kind: str) -> list[Line]:
        return [line for line in self.lines if line["kind"] == kind]

    def moves(self) -> list[str]:
        """Return the state transitions, such as `partition New > Online`, or `2 Online > Offline` for replica 2."""
        return [
            f"{line.get('replica', 'partition')} {_short(line['from'])} > {_short(line['to'])}"
            for line in self.of("decision")
            if line["verdict"] == "move"
        ]

    def elections(self) -> list[str]:
        """Return the kinds of the elections that chose a leader, such as `Offline`."""
        return [
            line["election"].removesuffix("PartitionLeaderElection")
            for line in self.of("decision")
            if line["verdict"] == "move" and line.get("election")
        ]

    def requests(self) -> list[tuple[str, int]]:
        """Return the requests in the order in which they were queued, as (name, broker)."""
        return [(line["request"], line["to"]) for line in self.of("request")]

    def steps(self) -> list[str]:
        return [line["step"] for line in self.of("step")]

    def writes(self) -> list[tuple[str, str]]:
        """Return the operations of accepted multis as (operation, path)."""
        return [
            (operation["op"], operation["path"])
            for line in self.of("write")
            if line["outcome"] == "ok"
            for operation in line["operations"]
            if operation["op"] != "check"
        ]

    def became(self) -> list[tuple[int, str]]:
        """Return (broker, role) of every role change that brokers have recorded."""
        return [
            (line["broker"], result["became"])
            for line in self.of("effect")
            for result in line.get("results", ())
        ]


def _short(state: str) -> str:
    return state.removesuffix("Partition").removesuffix("Replica").removeprefix("Replica")
