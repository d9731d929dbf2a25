"""Whole brokers and their ZooKeeper in one event loop, over simulated disks, networks and clocks.

The class `BrokerServer` and the client and server of ZooKeeper are the same as in production; only the
implementations of their interfaces differ. Each broker is a separate simulated process (`loop.py`), and so is
ZooKeeper. In a `SeededLoop`, brokers can be killed and paused, and the seed decides which process runs next.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from minikafka.base.config import BrokerConfig
from minikafka.base.coordination import CONTROLLER
from minikafka.broker.broker import BrokerServer, create_broker
from minikafka.broker.capabilities import CoordinationMode
from minikafka.broker.ledger.reader import Line, merged
from minikafka.broker.ledger.writer import directory_of
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.modes.controller import ControllerMode
from minikafka.broker.modes.leaders import LeadersMode
from minikafka.broker.ports import BrokerPorts
from minikafka.client import Client
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.clocks import LoopClock, SkewedClock
from minikafka.simulation.control_plane import SECRET, MemoryControlPlane, MemoryServer
from minikafka.simulation.descriptors import ManyDescriptors
from minikafka.simulation.files import BytesLeft, NamesLeft, former_bytes, names_of_last_fsync
from minikafka.simulation.loop import OUTSIDE, Process, running_loop, start_in
from minikafka.simulation.ports import (
    IdleProcessor,
    InlineExecutor,
    MemoryCleaners,
    SeededRng,
    no_text,
)
from minikafka.simulation.storage import MemoryStorage
from minikafka.simulation.transport import MemoryTransport
from minikafka.simulation.zookeeper import CONNECT, ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient

LOG_DIR: Final = "/data"
CLIENTS: Final = OUTSIDE.name
ZOOKEEPER: Final = "zookeeper"


class MemoryCluster:
    """A cluster of in-memory brokers, used as `async with MemoryCluster() as cluster`.

    Broker ids are `ids`, by default 0 to `brokers` - 1. Keys of `config` are Kafka's, with underscores for dots.
    `offsets_ms`: by broker, how far its wall clock is ahead of the cluster's. `coordination`: the mode, by default
    `default_coordination`.
    """

    default_coordination: ClassVar[str] = CONTROLLER
    """The mode of clusters that are created without one."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        ids: range | None = None,
        offsets_ms: Mapping[int, int] | None = None,
        coordination: str = "",
        **config: object,
    ) -> None:
        self.coordination = coordination or self.default_coordination
        self.clock = LoopClock()
        self.transport = MemoryTransport()
        self.ensemble = ZooKeeperInMemory(self.transport, self.clock)
        self.servers: dict[int, MemoryServer] = {}
        self.config = {key.replace("_", "."): value for key, value in config.items()}
        self.storages = {number: MemoryStorage() for number in ids or range(brokers)}
        self.clocks = {
            number: SkewedClock(self.clock, offset) for number, offset in (offsets_ms or {}).items()
        }
        for number in self.storages:
            self.storages[number].wall_ms = self.clock_of(number).wall_ms
        self.brokers: dict[int, BrokerServer] = {}
        self.processes: dict[int, Process] = {}
        self.ports: dict[int, BrokerPorts] = {}
        self.cleaners: dict[int, MemoryCleaners] = {}
        self.descriptors = ManyDescriptors()
        self.sessions: dict[int, InMemoryClient] = {}
        self.control_delay: Callable[[], float] = lambda: 0
        """Returns the delay of the next controller request in seconds."""
        self.killed: list[object] = []
        self.crashes: list[tuple[str, Exception]] = []

    async def __aenter__(self) -> MemoryCluster:
        for number in self.storages:
            await self.start(number)
        await self.until_all_are_known()
        return self

    async def until_all_are_known(self) -> None:
        """Wait until every running broker knows all running brokers."""
        for broker in self.brokers.values():
            await self._until_knows_all(broker.metadata)

    async def _until_knows_all(self, metadata: MetadataCache) -> None:
        await metadata.wait_until(lambda: self.brokers.keys() <= metadata.brokers.keys(), 60_000)

    async def until_all_are_in_sync(self) -> None:
        """Wait until every running broker knows that all replicas of every partition are in sync."""
        async with asyncio.timeout(60):
            while any(  # noqa: ASYNC110  what is watched has no event
                len(state.isr) < len(state.replicas)
                for broker in self.brokers.values()
                for partitions in broker.metadata.topics.values()
                for state in partitions.values()
            ):
                await asyncio.sleep(0.02)

    async def __aexit__(self, *_: object) -> None:
        for number in tuple(self.brokers):
            if self.processes[number].is_paused:  # the scenario has failed: show its error
                self.resume(number)
            await self.stop(number, controlled=False)
        await self.ensemble.close()
        assert not self.crashes, f"tasks of brokers have crashed: {self.crashes}"

    async def start(self, number: int) -> BrokerServer:
        """Start a broker, or start it again on the same storage."""
        process = self.processes[number] = Process(f"broker {number}")
        return await start_in(process, self._start(number))

    async def _start(self, number: int) -> BrokerServer:
        config = BrokerConfig.from_mapping(
            {
                "broker.id": number,
                "log.dirs": LOG_DIR,
                "listeners": f"PLAINTEXT://127.0.0.1:{9092 + number}",
                "zookeeper.connect": CONNECT,
                "minikafka.cluster.secret": SECRET,
                "minikafka.coordination": self.coordination,
                "controlled.shutdown.max.retries": 1,
                **self.config,
            }
        )
        rng, storage, clock = SeededRng(number), self.storages[number], self.clock_of(number)
        self.cleaners[number] = MemoryCleaners(storage, clock)
        tasks = TaskRegistry(lambda name, error: self.crashes.append((name, error)))
        ports = self.ports[number] = BrokerPorts(
            clock,
            IdleProcessor(),
            rng,
            storage,
            self.transport,
            tasks,
            InlineExecutor(),
            self.cleaners[number],
            lambda cluster_id, tls: MemoryControlPlane(
                self.servers,
                number,
                clock,
                self._delay_of_call,
                self.transport.cuts,
                config.protocol_versions,
            ),
            self.descriptors,
            no_text,
        )
        try:
            broker = await create_broker(config, ports, self.new_mode(config, ports))
            self.brokers[number] = broker
            self.created(broker)
            await broker.start()
        except BaseException:
            self.brokers.pop(number, None)
            await tasks.close()
            raise
        return broker

    def new_mode(self, config: BrokerConfig, ports: BrokerPorts) -> CoordinationMode:
        """Return the mode of one broker. A subclass may return another mode."""
        session = self.sessions[config.broker_id] = InMemoryClient(
            self.ensemble,
            session_ms=config.zookeeper_session_timeout_ms,
            clock=ports.clock,
            tasks=ports.tasks,
        )
        mode = ControllerMode if self.coordination == CONTROLLER else LeadersMode
        return mode(
            config, ports.clock, ports.rng, ports.storage, ports.tasks, session, self._end_session
        )

    def clock_of(self, number: int) -> SkewedClock:
        """Return the clock of one broker, which survives restarts of the broker."""
        return self.clocks.setdefault(number, SkewedClock(self.clock, 0))

    def created(self, broker: BrokerServer) -> None:
        """Called before each start of a broker, so that a subclass can change the new broker."""

    def _delay_of_call(self) -> float:
        return self.control_delay()

    async def _end_session(self, session_id: int, password: bytes) -> None:
        await self.ensemble.close_session(session_id, password)

    async def stop(self, number: int, *, controlled: bool = True) -> None:
        """Shut one broker down, in a task of the broker's process."""
        broker = self.brokers.pop(number)
        await start_in(self.processes[number], broker.shutdown(controlled=controlled))

    def kill(self, number: int) -> None:
        """Kill the broker as by SIGKILL (only in a `SeededLoop`): it runs no further code, and its session expires.

        The broker's connections are closed. The data written to its storage is still there at the next start.
        """
        process = self.processes[number]
        running_loop().kill(process)
        self.killed += [self.ports[number], self.brokers.pop(number, None)]
        self.storages[number] = self.storages[number].clone()
        self.transport.kill(process)
        for server in list(self.servers.values()):
            if server.process is process:
                server.kill()

    def lose_power(
        self,
        number: int,
        remains: BytesLeft = former_bytes,
        names: NamesLeft = names_of_last_fsync,
    ) -> None:
        """Kill the broker, and leave of its disk what a power loss leaves (`MemoryStorage.power_cut`)."""
        left = self.storages[number].power_cut(remains, names)
        self.kill(number)
        self.storages[number] = left

    def kill_with_session(self, number: int) -> None:
        """Kill the broker, and end its ZooKeeper session at once."""
        self.kill(number)
        self.end_session(number)

    def end_session(self, number: int) -> None:
        """End the broker's ZooKeeper session at once, as if its time were over."""
        self.ensemble.end_session(self.sessions[number].session_id)

    def pause(self, number: int) -> None:
        """Pause the broker as by SIGSTOP (only in a `SeededLoop`). Its connections stay open."""
        running_loop().pause(self.processes[number])

    def resume(self, number: int) -> None:
        """Let a paused broker run again, as by SIGCONT."""
        running_loop().resume(self.processes[number])

    def cut(self, source: int | str, target: int | str) -> None:
        """Lose, in silence, everything that one part of the cluster sends to another, until `heal`.

        A part is a broker's id, `ZOOKEEPER`, or `CLIENTS`: the code outside of brokers. Connections stay open.
        """
        self.transport.cuts.add(_host(source), _host(target))

    def heal(self, source: int | str, target: int | str) -> None:
        """End a cut."""
        self.transport.heal(_host(source), _host(target))

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, including brokers that do not run."""
        return ",".join(f"127.0.0.1:{9092 + number}" for number in self.storages)

    def client(self, **options: Any) -> Client:
        """Return a native client connected through the cluster's in-memory network. `options`: those of `Client`."""
        own: dict[str, Any] = {
            "transport": self.transport,
            "clock": self.clock,
            "rng": SeededRng(0),
        }
        return Client(self.bootstrap, **own, **options)

    def topic_id(self, topic: str) -> bytes | None:
        """Return the id of a topic, None while no broker knows the topic."""
        known = (broker.metadata.topic_ids.get(topic) for broker in self.brokers.values())
        return next(filter(None, known), None)

    def ledger(self, number: int) -> list[Line]:
        """Return the ledger lines in the storage of one broker."""
        storage, directory = self.storages[number], directory_of(LOG_DIR)
        return [
            json.loads(line)
            for name in storage.names(directory)
            for line in storage.read(f"{directory}/{name}").splitlines()
        ]

    def history(self) -> list[Line]:
        """Return the ledger lines of all brokers, merged."""
        return merged([self.ledger(number) for number in self.storages])


def _host(part: int | str) -> str:
    return f"broker {part}" if isinstance(part, int) else part
