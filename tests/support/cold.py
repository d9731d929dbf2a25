"""The services that handlers of cold (infrequent) requests use, over fakes and an in-memory ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from typing import Any

from support.endpoints import endpoints
from support.loop_clock import LoopClock, SeededRng
from support.manual_clock import ManualClock
from support.memory_zookeeper import Ensemble
from support.memory_zookeeper_client import MemoryZooKeeper
from support.until import until

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode, KafkaError, StorageFailed
from minikafka.base.metrics import Metrics
from minikafka.base.model import (
    LEADER_DURING_DELETE,
    Broker,
    PartitionState,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.ports import Call, Check
from minikafka.broker.admin import Admin
from minikafka.broker.admin.auto_create import AutoCreate
from minikafka.broker.admin.configs import ConfigAdmin
from minikafka.broker.admin.partitions import PartitionAdmin
from minikafka.broker.admin.topics import TopicAdmin
from minikafka.broker.cluster.controller_client import ControllerClient
from minikafka.broker.cluster.metadata import MetadataCache
from minikafka.broker.cluster.producer_ids import ProducerIds
from minikafka.broker.coordinators.groups import GroupService, offsets_topic
from minikafka.broker.coordinators.internal_topic import InternalTopic
from minikafka.broker.coordinators.transactional_ids import TransactionalClients
from minikafka.broker.modes.controller.config_store import ZooKeeperConfigs
from minikafka.broker.modes.controller.fenced import FencedWrites
from minikafka.broker.modes.controller.mode import PRODUCER_ID_BLOCK
from minikafka.broker.modes.controller.topic_store import ZooKeeperTopics
from minikafka.broker.replicas.refusals import Refusals
from minikafka.broker.replicas.roles import Roles
from minikafka.broker.requests.request_metrics import RequestMetrics
from minikafka.broker.requests.services import ClientConnection, RequestContext, Services, Steps
from minikafka.broker.settings.dynamic_config import DynamicConfig
from minikafka.broker.turns.scheduler import Scheduler
from minikafka.ledger.record import NOTHING
from minikafka.log.manager import Directory
from minikafka.record.transactions import Marker
from minikafka.wire.codec import decode_response, encode_response
from minikafka.zk import layout
from minikafka.zk.nodes import ids


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


class WaitedForMetadata(MetadataCache):
    """A metadata cache that lets a test wait until some requests are waiting for a metadata update."""

    async def until_waiting(self, *requests: asyncio.Future[Any], waiting: int = 1) -> None:
        """Run the loop until `waiting` requests wait for a metadata update, or all of `requests` are done."""
        await until(
            lambda: (
                len(self._waiters) >= waiting
                or (requests and all(request.done() for request in requests))
            )
        )


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
        self.calls.append((host, port, method))
        self.targets.append(target_id)
        if self.handler is None:
            raise ConnectionRefusedError(host, port)
        return await self.handler(body)

    async def serve(self, handler: Any, host: str, port: int) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class Replicas:
    """A broker's hosted replicas, and the error codes for other partitions, set by the test."""

    def __init__(self, turns: Scheduler) -> None:
        self.turns = turns
        self.hosted: dict[TopicPartition, Any] = {}
        clock = ManualClock()
        self.refusals = Refusals(self.hosted, MetadataCache(clock), clock, lambda: "connected")
        self.errors: dict[TopicPartition, int] = {}
        self.directories: list[Directory] = []
        self.failure: StorageFailed | None = None
        self.roles = Roles()

    def log_directories(self) -> list[Directory]:
        return self.directories

    def room(self, directory: str) -> tuple[int, int]:
        if self.failure is not None:
            raise self.failure
        return 1000, 400

    def partition(self, tp: TopicPartition) -> Any:
        return self.hosted.get(tp)

    def append(self, tp: TopicPartition, batch: bytes) -> asyncio.Future[int]:
        raise NotImplementedError

    def before_write(self, append: Callable[[], None]) -> None:
        raise NotImplementedError

    def reader(self, tp: TopicPartition) -> Any:
        raise NotImplementedError

    def on_marker(self, callback: Callable[[TopicPartition, Marker], None]) -> None:
        """No marker is ever appended."""

    def error_for(self, tp: TopicPartition) -> int:
        return self.errors.get(tp, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))


class Cold:
    """The parts of a broker that handlers of infrequent requests use. A handler gets the parts as `services`."""

    def __init__(
        self,
        *,
        broker_id: int = 1,
        controller_id: int = 1,
        live: Sequence[int] = (1, 2, 3),
        config: Mapping[str, object] | None = None,
        ensemble: Ensemble | None = None,
    ) -> None:
        self.config = BrokerConfig.from_mapping({"broker.id": broker_id, **(config or {})})
        self.ensemble = ensemble or new_ensemble()
        self.session = MemoryZooKeeper(self.ensemble)
        self.session.attach()
        self.clock, self.rng, self.tasks, self.calls = LoopClock(), SeededRng(), Tasks(), Calls()
        self.controller = Controller(broker_id, controller_id)
        self.metadata = WaitedForMetadata(self.clock)
        turns = Scheduler(self.clock, lambda now: None)
        self.replicas = Replicas(turns)
        zookeeper = self.session
        self.settings = DynamicConfig(self.config)
        self.applied = 0
        controller: Any = self.controller
        stored = ZooKeeperTopics(zookeeper, FencedWrites(zookeeper, controller, NOTHING))
        pauses = turns.parts
        topics = TopicAdmin(stored, controller, self.metadata, self.settings, self.rng, pauses)
        client = ControllerClient(
            broker_id, controller, self.metadata, self.calls, "CONTROLLER", self._handle
        )
        configs = ZooKeeperConfigs(
            zookeeper, self.clock, self.tasks, broker_id, controller, NOTHING
        )
        self.admin = Admin(
            topics,
            AutoCreate(topics, client, self.metadata, self.config, self.tasks),
            PartitionAdmin(stored, controller, self.metadata, pauses),
            ConfigAdmin(configs, self.metadata, self.settings, self._apply, pauses),
            pauses,
        )
        self.producer_ids = ProducerIds(
            lambda: ids.claim_producer_ids(zookeeper, broker_id, PRODUCER_ID_BLOCK)
        )
        self.live = {n: broker(n) for n in live}
        self.update()
        self.groups = GroupService(
            self.config,
            self.replicas,
            InternalTopic(offsets_topic(self.config), self.metadata, self.admin.auto_create),
            self.clock,
            self.rng,
            self.tasks,
            NOTHING,
            Metrics(),
        )
        self.services = Services(
            broker_id=broker_id,
            cluster_id="the-cluster",
            config=self.config,
            settings=self.settings,
            clock=self.clock,
            rng=self.rng,
            replicas=self.replicas,
            metadata=self.metadata,
            admin=self.admin,
            producer_ids=self.producer_ids,
            groups=self.groups,
            administration=controller,
            control_plane=self.calls,
            requests=RequestMetrics(Metrics()),
            pauses=pauses,
            transactional=TransactionalClients(self.clock),
        )

    def data(self, path: str) -> bytes:
        """Return the data of a znode."""
        return self.ensemble.nodes[path].data

    def znodes(self) -> dict[str, tuple[bytes, int]]:
        """Return data and version of every znode."""
        return {path: (node.data, node.version) for path, node in self.ensemble.nodes.items()}

    async def _handle(self, call: Call) -> dict[str, Any]:
        return await self.admin.auto_create.handle_create_topics(call.body)

    async def _apply(self) -> None:
        self.applied += 1

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


def new_ensemble() -> Ensemble:
    """Return an in-memory ZooKeeper with the nodes that brokers create at their start, and controller epoch 1."""
    ensemble = Ensemble()
    for path in layout.PERSISTENT:
        ensemble.put(path)
    ensemble.put(layout.CONTROLLER_EPOCH, b"1")
    ensemble.put(layout.PRODUCER_ID_BLOCK)
    return ensemble


def broker(broker_id: int, rack: str | None = None) -> Broker:
    return Broker(
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


def context(version: int, software: str = "") -> RequestContext:
    """Return the context of a request of this API version, for a handler that does not call `context.answer`."""
    connection = ClientConnection(1, "PLAINTEXT", "127.0.0.1:50000", software=software)
    return RequestContext(connection, "client", version, lambda response: None)
