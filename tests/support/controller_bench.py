"""Several controller candidates over one ZooKeeper in memory, with channels that only remember."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from support.endpoints import endpoints
from support.memory_coordination import Ensemble, MemoryCoordination
from support.recording_ledger import RecordingLedger

from minikafka.base.config import BrokerConfig
from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsr,
    ReplicaAssignment,
    TopicPartition,
)
from minikafka.base.ports import Clock
from minikafka.broker.step_gate import StepGate
from minikafka.broker.zk_controller import ZooKeeperController
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.zk import layout


class RecordingChannels:
    """What a controller would have sent; `answer` may make the broker's response."""

    def __init__(self) -> None:
        self.open: dict[BrokerId, Broker] = {}
        self.sent: list[tuple[BrokerId, ControllerRequest]] = []
        self.answer: Callable[[BrokerId, ControllerRequest], ControllerResponse | None] = (
            lambda *_: None
        )

    def add(self, broker: Broker) -> None:
        self.open[broker.id] = broker

    def remove(self, broker_id: BrokerId) -> None:
        self.open.pop(broker_id, None)

    def send(self, broker_id: BrokerId, request: ControllerRequest, on_response: Any) -> None:
        self.sent.append((broker_id, request))
        response = self.answer(broker_id, request)
        if response is not None:
            asyncio.get_running_loop().call_soon(on_response, broker_id, request, response)

    def stop(self) -> None:
        self.open.clear()

    def waiting(self, broker_id: BrokerId) -> int:
        return 0

    def backlog(self) -> dict[BrokerId, int]:
        return {}

    def to(self, broker_id: BrokerId, kind: type) -> list[Any]:
        return [
            request for id_, request in self.sent if id_ == broker_id and isinstance(request, kind)
        ]


class Candidate:
    """One broker as far as its controller goes: a session, a registration, channels, the service.

    Over a session in memory, unless `coordination` and its `tasks` are given. Keys of `config` are Kafka's.
    """

    def __init__(
        self,
        ensemble: Ensemble,
        broker_id: BrokerId,
        coordination: Any = None,
        tasks: TaskRegistry | None = None,
        clock: Clock | None = None,
        **config: object,
    ) -> None:
        self.id = broker_id
        self.ensemble = ensemble
        self.coordination: Any = coordination or MemoryCoordination(ensemble)
        self.channels = RecordingChannels()
        self.tasks = tasks or TaskRegistry()
        self.info = Broker(
            broker_id, endpoints("127.0.0.1", 9092 + broker_id, "127.0.0.1", 19092 + broker_id)
        )
        keys = {key.replace("_", "."): value for key, value in config.items()}
        self.config = BrokerConfig.from_mapping({"broker.id": broker_id, **keys})
        self.ledger = RecordingLedger()
        self.gate = StepGate()
        self.service = ZooKeeperController(
            self.coordination,
            self.channels,
            clock or SystemClock(),
            self.tasks,
            self.config,
            self.ledger,
            self.gate,
        )

    async def start(self) -> Candidate:
        await self.connect()
        await self.service.start()
        return self

    async def connect(self) -> None:
        """Begin a session and register the broker in it."""
        await self.coordination.start()
        await self.register()

    async def register(self) -> None:
        path = layout.broker_path(self.id)
        await self.coordination.create(path, layout.encode_broker(self.info), ephemeral=True)

    async def die(self) -> None:
        """As by SIGKILL: nothing is said, the session expires."""
        await self.tasks.close()
        self.ensemble.end_session(self.coordination.session_id)

    async def close(self) -> None:
        await self.tasks.close()


def new_ensemble() -> Ensemble:
    ensemble = Ensemble()
    for path in layout.PERSISTENT:
        ensemble.put(path)
    return ensemble


def create_topic(ensemble: Ensemble, topic: str, *replica_lists: list[int]) -> None:
    assignment = {i: ReplicaAssignment(tuple(replicas)) for i, replicas in enumerate(replica_lists)}
    ensemble.put(layout.topic_path(topic), layout.encode_topic(b"0123456789abcdef", assignment))


def state_of(ensemble: Ensemble, tp: TopicPartition) -> LeaderAndIsr | None:
    node = ensemble.nodes.get(layout.state_path(tp))
    return layout.decode_state(node.data, node.version) if node else None


async def until(predicate: Callable[[], Any], seconds: float = 5) -> Any:
    """The predicate's first true value."""
    async with asyncio.timeout(seconds):
        while not (value := predicate()):  # noqa: ASYNC110  (what it waits for has no event)
            await asyncio.sleep(0.002)
    return value
