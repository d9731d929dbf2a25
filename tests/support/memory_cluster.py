"""Whole brokers and their ZooKeeper in one event loop, with in-memory stand-ins for disks and network.

The class `BrokerServer` and the client and server of ZooKeeper are the same as in production; only the
implementations of their interfaces differ. Each broker is a separate simulated process (`seeded_loop.py`), and so is
ZooKeeper. In a `SeededLoop`, a test can kill a broker, and the seed decides which process runs next.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from support import proof
from support.loop_clock import IdleProcessor, LoopClock, SeededRng, SkewedClock
from support.memory_cleaners import MemoryCleaners
from support.memory_storage import MemoryStorage
from support.memory_transport import MemoryTransport
from support.seeded_loop import PROCESS, Process, SeededLoop, context_of
from support.zookeeper_in_memory import CONNECT, InMemoryClient, ZooKeeperInMemory

from minikafka.base.config import BrokerConfig
from minikafka.base.coordination import CONTROLLER
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.ports import Call, Clock, Listener
from minikafka.broker.broker import BrokerServer, create_broker
from minikafka.broker.capabilities import CoordinationMode
from minikafka.broker.ledger.reader import Line, merged
from minikafka.broker.ledger.writer import directory_of
from minikafka.broker.modes.controller import ControllerMode
from minikafka.broker.modes.leaders import LeadersMode
from minikafka.broker.ports import BrokerPorts
from minikafka.broker.rpc.signatures import Signer, Verifier
from minikafka.client import Client
from minikafka.runtime.tasks import TaskRegistry

Handler = Callable[[Call], Awaitable[dict[str, Any]]]
LOG_DIR = "/data"
SECRET = "a secret of tests"
INCARNATIONS = itertools.count()


class InlineExecutor:
    """The Executor port without threads: blocking work runs on the event loop."""

    async def run(self, function: Callable[[], Any]) -> Any:
        return function()


class MemoryServer:
    """The handler of control-plane calls on one port, with the simulated process that serves the port."""

    def __init__(self, plane: MemoryControlPlane, handler: Handler, port: int) -> None:
        self.servers = plane.servers
        self.plane = plane
        self.handler = handler
        self.port = port
        self.process = PROCESS.get()
        self.calls: set[asyncio.Future[Any]] = set()
        self.servers[port] = self

    async def close(self) -> None:
        self.servers.pop(self.port, None)

    def kill(self) -> None:
        """Close the port and fail every open call, as the kernel closes the sockets of a killed process."""
        self.servers.pop(self.port, None)
        for call in self.calls:
            if not call.done():
                call.set_exception(ConnectionResetError("the peer was killed"))


class MemoryControlPlane:
    """A ControlPlane without sockets, whose calls are signed and verified as over HTTP.

    `servers`: the servers of all brokers, by TCP port number.
    """

    def __init__(
        self,
        servers: dict[int, MemoryServer],
        broker_id: int,
        clock: Clock,
        delay: Callable[[], float] = lambda: 0,
    ) -> None:
        self.servers = servers
        self.clock = clock
        self.delay = delay
        self.mine: list[MemoryServer] = []
        incarnation = next(INCARNATIONS).to_bytes(8)
        self.signer = Signer(SECRET.encode(), "", broker_id, incarnation)
        self.verifier = Verifier(SECRET.encode(), "", broker_id, incarnation)

    async def serve(
        self, handler: Handler, host: str, port: int, metrics: object = None
    ) -> Listener:
        port = port or 50_000 + len(self.servers) + 1
        while port in self.servers:
            port += 1
        self.mine.append(MemoryServer(self, handler, port))
        return self.mine[-1]

    async def call(
        self,
        host: str,
        port: int,
        method: str,
        body: dict[str, Any],
        *,
        target_id: int,
        timeout_ms: int,
    ) -> dict[str, Any]:
        """Send a call and return the answer. The call is handled in a task of the server's process."""
        await asyncio.sleep(self.delay())
        server = self.server(port)
        self.authenticate(server.plane, target_id, method)
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        task = asyncio.get_running_loop().create_task(
            _handle(server, Call(method, body), answer), context=context_of(server.process)
        )
        server.calls.add(answer)
        try:
            async with asyncio.timeout(timeout_ms / 1_000):
                return await answer
        finally:
            server.calls.discard(answer)
            if not server.process.is_dead:
                task.cancel()

    async def clock_offset(self, host: str, port: int, *, target_id: int, timeout_ms: int) -> int:
        return self.server(port).plane.clock.wall_ms() - self.clock.wall_ms()

    def server(self, port: int) -> MemoryServer:
        server = self.servers.get(port)
        if server is None:
            raise ConnectionRefusedError(f"nobody serves on port {port}")
        return server

    def authenticate(self, server: MemoryControlPlane, target_id: int, method: str) -> None:
        """Sign a call and let the server verify it. The body is not signed, to save time."""
        challenge = server.verifier.challenge(server.clock.now())
        headers = self.signer.headers(target_id, "POST", method, b"", challenge)
        sealed = server.verifier.verify("POST", method, headers, server.clock.now())
        if isinstance(sealed, str):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, sealed)

    async def close(self) -> None:
        for server in self.mine:
            await server.close()


async def _handle(server: MemoryServer, call: Call, answer: asyncio.Future[dict[str, Any]]) -> None:
    """Set the handler's result or exception as the answer, unless the caller has given up."""
    try:
        result = await server.handler(call)
    except Exception as error:  # noqa: BLE001  (it is the caller's)
        if not answer.done():
            answer.set_exception(error)
    else:
        if not answer.done():
            answer.set_result(result)


class ManyDescriptors:
    """The file descriptors of a broker in memory. By default they never run out."""

    def __init__(self) -> None:
        self.most, self.open = 1_000_000, 0

    def limit(self) -> int:
        """Return the maximum number of open descriptors."""
        return self.most

    def used(self) -> int:
        """Return the number of open descriptors."""
        return self.open


class MemoryCluster:
    """A cluster of in-memory brokers, used as `async with MemoryCluster() as cluster`.

    Broker ids are `ids`, by default 0 to `brokers` - 1. Keys of `config` are Kafka's, with underscores for dots.
    `offsets_ms`: by broker, how far its wall clock is ahead of the cluster's. `coordination`: the mode, by default
    `default_coordination`.
    """

    default_coordination = CONTROLLER
    """The mode of clusters made without one. The fixture `each_mode` sets it for a test that runs in both modes."""

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
            known = broker.metadata
            await known.wait_until(
                lambda known=known: self.brokers.keys() <= known.brokers.keys(), 60_000
            )  # type: ignore[misc]

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
            await self.stop(number, controlled=False)
        await self.ensemble.close()
        assert self.crashes == []

    async def start(self, number: int) -> BrokerServer:
        """Start a broker, or start it again on the same storage."""
        proof.note(proof.Level.MEMORY, self.coordination)
        process = self.processes[number] = Process(f"broker {number}")
        starting = asyncio.get_running_loop().create_task(
            self._start(number), context=context_of(process)
        )
        return await starting

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
            lambda cluster_id: MemoryControlPlane(
                self.servers, number, clock, lambda: self.control_delay()
            ),
            self.descriptors,
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

    async def _end_session(self, session_id: int, password: bytes) -> None:
        await self.ensemble.close_session(session_id, password)

    async def stop(self, number: int, *, controlled: bool = True) -> None:
        """Shut one broker down, in a task of the broker's process."""
        context = context_of(self.processes[number])
        shutdown = self.brokers.pop(number).shutdown(controlled=controlled)
        await asyncio.get_running_loop().create_task(shutdown, context=context)

    def kill(self, number: int) -> None:
        """Kill the broker as by SIGKILL (only in a `SeededLoop`): it runs no further code, and its session expires.

        The broker's connections are closed. The data written to its storage is still there at the next start.
        """
        loop = asyncio.get_running_loop()
        assert isinstance(loop, SeededLoop)
        process = self.processes[number]
        loop.kill(process)
        self.killed += [self.ports[number], self.brokers.pop(number, None)]
        self.storages[number] = self.storages[number].clone()
        self.transport.kill(process)
        for server in list(self.servers.values()):
            if server.process is process:
                server.kill()

    @property
    def bootstrap(self) -> str:
        """Addresses of all brokers, including brokers that do not run."""
        return ",".join(f"127.0.0.1:{9092 + number}" for number in self.storages)

    def client(self, **options: Any) -> Client:
        """Return a native client connected through the cluster's in-memory network. `options`: those of `Client`."""
        own = {"transport": self.transport, "clock": self.clock, "rng": SeededRng(0)}
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
