"""A broker in memory that has not started, for tests of the handlers of cold (infrequent) requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from support.brokers.endpoints import endpoints
from support.brokers.memory_mode import MemoryAcls, MemoryState
from support.until import until

from minikafka.base.config import BrokerConfig
from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import (
    LEADER_DURING_DELETE,
    PartitionState,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.model import Broker as BrokerInfo
from minikafka.base.ports import Check, Gate, Ledger
from minikafka.base.protocol_versions import VERSION, VERSIONS
from minikafka.broker.broker import BrokerServer
from minikafka.broker.capabilities import Capabilities
from minikafka.broker.ledger.record import NOTHING
from minikafka.broker.modes.controller.fenced_writes import ControllerConfigWrites, FencedWrites
from minikafka.broker.modes.controller.mode import PRODUCER_ID_BLOCK
from minikafka.broker.modes.controller.topic_store import ZooKeeperTopics
from minikafka.broker.modes.zookeeper.config_store import ZooKeeperConfigs
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.modes.zookeeper.token_store import ZooKeeperTokens
from minikafka.broker.ports import BrokerPorts
from minikafka.broker.security import BrokerSecurity
from minikafka.broker.services import ClientConnection, RequestContext, Services, Steps
from minikafka.kafka.wire.codec import decode_response, encode_response
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.descriptors import ManyDescriptors
from minikafka.simulation.ports import (
    IdleProcessor,
    InlineExecutor,
    MemoryCleaners,
    SeededRng,
    no_text,
)
from minikafka.simulation.storage import MemoryStorage
from minikafka.simulation.transport import MemoryTransport
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.storage.log.manager import LogManager
from minikafka.zookeeper.nodes import ids, layout
from minikafka.zookeeper.nodes.faults import Faults


class Tasks:
    """Background tasks; a test waits for their end with `settle`."""

    def __init__(self) -> None:
        self.running: list[asyncio.Task[None]] = []

    def spawn(self, coroutine: Coroutine[Any, Any, None], name: str) -> Awaitable[None]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self.running.append(task)
        return task

    async def settle(self) -> None:
        while self.running:
            await self.running.pop()

    async def close(self) -> None:
        await self.settle()


class Controller:
    """A broker's view of which broker is the controller, set by the test."""

    def __init__(self, broker_id: int, controller_id: int) -> None:
        self.is_active = broker_id == controller_id
        self.controller_id = controller_id
        self.generation = 1

    def check_may_act(self) -> None:
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller")

    def fence(self) -> Check:
        self.check_may_act()
        return Check(layout.CONTROLLER_EPOCH, 0)

    async def wait_while_controller(self, call: Awaitable[Any]) -> Any:
        return await call


class Calls:
    """A control plane that records every call and passes it to one handler."""

    def __init__(self) -> None:
        self.handler: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]] | None = None
        self.calls: list[tuple[str, int, str]] = []
        self.targets: list[int] = []
        self.versions = VERSIONS

    async def call(
        self,
        endpoint: Endpoint,
        method: str,
        body: dict[str, Any],
        *,
        target_id: int,
        timeout_ms: int,
        version: str = VERSION,
    ) -> dict[str, Any]:
        self.calls.append((endpoint.host, endpoint.port, method))
        self.targets.append(target_id)
        if self.handler is None:
            raise ConnectionRefusedError(endpoint.host, endpoint.port)
        return await self.handler(body)


class MonotonicClock(LoopClock):
    """The time of a running loop, which can also be read without a loop."""

    def now(self) -> int:
        return int(time.monotonic() * 1000)


class Configs(ZooKeeperConfigs):
    """The stored settings. `applied`: how often the broker was told to apply changed settings."""

    applied = 0

    def changes(self, listener: object) -> Any:
        return self

    async def apply_now(self) -> None:
        self.applied += 1


class Mode:
    """The capabilities over ZooKeeper of a broker whose controller is set by the test."""

    def __init__(self, session: InMemoryClient, controller: Controller, broker_id: int) -> None:
        self.session, self.broker_id = session, broker_id
        self.controller: Any = controller
        self.acls = MemoryAcls(MemoryState())

    def capabilities(self, control_plane: Calls, ledger: Ledger, gate: Gate) -> Capabilities:
        session, broker_id, controller = self.session, self.broker_id, self.controller
        lifecycle: Any = SimpleNamespace(session_state="connected", report_lost_connection=None)
        roles: Any = SimpleNamespace(calls={})
        unused: Any = None
        return Capabilities(
            lifecycle=lifecycle,
            roles=roles,
            isrs=unused,
            topics=ZooKeeperTopics(session, FencedWrites(session, controller, ledger)),
            configs=Configs(
                session,
                LoopClock(),
                Tasks(),
                broker_id,
                ControllerConfigWrites(session, controller, ledger),
            ),
            acls=self.acls,
            tokens=ZooKeeperTokens(
                Ports(unused, session, LoopClock(), Tasks(), ledger, gate, Faults())
            ),
            administration=controller,
            diagnostics=unused,
            claim_producer_ids=partial(
                ids.claim_producer_ids, session, broker_id, PRODUCER_ID_BLOCK
            ),
        )


class Cold(BrokerServer):
    """A broker in memory that has not started: the test sets its metadata, and which broker is the controller."""

    tasks: Tasks

    def __init__(
        self,
        *,
        broker_id: int = 1,
        controller_id: int = 1,
        live: Sequence[int] = (1, 2, 3),
        config: Mapping[str, object] | None = None,
        ensemble: ZooKeeperInMemory | None = None,
    ) -> None:
        checked = BrokerConfig.from_mapping({"broker.id": broker_id, **(config or {})})
        self.ensemble = ensemble or new_ensemble()
        self.session = InMemoryClient(self.ensemble)
        self.calls = Calls()
        self.controller = Controller(broker_id, controller_id)
        clock, storage = MonotonicClock(), MemoryStorage()
        ports = BrokerPorts(
            clock,
            IdleProcessor(),
            SeededRng(),
            storage,
            MemoryTransport(),
            Tasks(),
            InlineExecutor(),
            MemoryCleaners(storage, clock),
            lambda cluster_id, tls: self.calls,
            ManyDescriptors(),
            no_text,
        )
        mode: Any = Mode(self.session, self.controller, broker_id)
        logs = LogManager(storage, checked, clock, ports.executor)
        security = BrokerSecurity(checked, ports)
        super().__init__(checked, ports, mode, "the-cluster", logs, NOTHING, security)
        self.live = {n: broker(n) for n in live}
        self.update()

    def _new_services(self, ports: BrokerPorts, cluster_id: str) -> Services:
        self.services = super()._new_services(ports, cluster_id)
        return self.services

    async def until_waiting(self, *requests: asyncio.Future[Any], waiting: int = 1) -> None:
        """Run the loop until `waiting` requests wait for a metadata update, or all of `requests` are done."""
        await until(
            lambda: (
                len(self.metadata._waiters) >= waiting
                or (requests and all(request.done() for request in requests))
            )
        )

    def data(self, path: str) -> bytes:
        """Return the data of a znode."""
        return self.ensemble.nodes[path].data

    def znodes(self) -> dict[str, tuple[bytes, int]]:
        """Return data and version of every znode."""
        return {path: (node.data, node.version) for path, node in self.ensemble.nodes.items()}

    def update(self, *states: PartitionState, ids: Mapping[str, bytes] | None = None) -> None:
        """Update the metadata cache, as an UpdateMetadata request of the controller does."""
        self.metadata.update(
            UpdateMetadataRequest(
                self.controller.controller_id,
                1,
                1,
                states,
                tuple(self.live.values()),
                tuple((ids or {}).items()),
            )
        )

    def forget_what_is_marked(self) -> None:
        """Remove the leaders of topics marked for deletion from the metadata, as the first step of a deletion does."""
        marked = [
            state(topic, partition, entry.replicas, leader=LEADER_DURING_DELETE)
            for topic, partitions in self.metadata.topics.items()
            if layout.delete_topic_path(topic) in self.ensemble.nodes
            for partition, entry in partitions.items()
        ]
        self.update(*marked)

    def lead_what_is_created(self) -> None:
        """Make the first replica of each new partition its leader in the metadata, as the controller does."""
        for path, node in self.ensemble.nodes.items():
            name = path.rpartition("/")[2]
            if path != layout.topic_path(name) or name in self.metadata.topics:
                continue
            topic_id, assignment = layout.decode_topic(node.data)
            states = [
                state(name, partition, entry.replicas) for partition, entry in assignment.items()
            ]
            self.update(*states, ids={name: topic_id} if topic_id else {})


def finished(steps: Steps) -> Any:
    """Run a handler's generator to its end; return the response."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        return done.value


def decoded(api: int, version: int, answer: Any) -> Any:
    """Return a handler's response after encoding and decoding. `answer` is the response or the handler's generator."""
    body = finished(answer) if isinstance(answer, Generator) else answer
    return decode_response(api, version, encode_response(1, api, version, body)[4:])


def new_ensemble() -> ZooKeeperInMemory:
    """Return an in-memory ZooKeeper with the nodes that brokers create at their start, and controller epoch 1."""
    ensemble = ZooKeeperInMemory()
    for path in layout.PERSISTENT:
        ensemble.put(path)
    ensemble.put(layout.CONTROLLER_EPOCH, b"1")
    ensemble.put(layout.PRODUCER_ID_BLOCK)
    return ensemble


def broker(broker_id: int, rack: str | None = None) -> BrokerInfo:
    return BrokerInfo(
        broker_id,
        endpoints(f"host-{broker_id}", 9000 + broker_id, "127.0.0.1", 9500 + broker_id),
        1,
        rack,
    )


def state(
    topic: str, partition: int, replicas: Sequence[int], leader: int | None = None
) -> PartitionState:
    first = replicas[0] if leader is None else leader
    return PartitionState(
        TopicPartition(topic, partition), first, 0, tuple(replicas), 0, 1, tuple(replicas)
    )


def context(version: int) -> RequestContext:
    """Return the context of a request of this API version, for a handler that does not call `context.answer`."""
    connection = ClientConnection(1, "PLAINTEXT", "127.0.0.1:50000")
    return RequestContext(connection, "client", version, lambda response: None)
