"""The controller service of a broker over an in-memory ZooKeeper, with channels that only record requests.

`Candidate` is the controller part of one broker. Several candidates may share a ZooKeeper. `ControllerBench` is a
candidate that was elected, next to two brokers that are only registered. It records a trace of everything it does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Self

from support.brokers.endpoints import endpoints
from support.brokers.mode_ports import mode_ports
from support.ledger.recording_ledger import RecordingLedger

from minikafka.base.config import BrokerConfig
from minikafka.base.model import (
    Broker,
    BrokerId,
    ControllerRequest,
    ControllerResponse,
    LeaderAndIsr,
    ReplicaAssignment,
    StopReplicaRequest,
    TopicPartition,
)
from minikafka.base.ports import Check, Clock, Stat, WatchKind, Znode
from minikafka.base.protocol_versions import VERSIONS, Versions
from minikafka.broker.ledger.record import DECISION, REQUEST, STEP
from minikafka.broker.modes.controller.terms import ZooKeeperController
from minikafka.broker.rpc.liveness import Presence, Probe
from minikafka.broker.step_gate import StepGate
from minikafka.runtime.clock import SystemClock
from minikafka.runtime.tasks import TaskRegistry
from minikafka.simulation.zookeeper import Znodes, ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import layout

T0 = TopicPartition("t", 0)
Event = tuple[str, str]


def describe(controller: ZooKeeperController) -> dict[str, Any]:
    """Return the controller's summary and every partition that it knows (B5-B7)."""
    return {**controller.summary(), "partitions": partitions_of(controller)}


def partitions_of(controller: Any) -> list[dict[str, Any]]:
    """Return every partition that has a leader and ISR, with its state and the states of its replicas (B6, B7).

    Return [] if `controller` is not active.
    """
    if controller._term is None:
        return []
    context = controller._term.machine.context
    return [
        {
            "topic": tp.topic,
            "partition": tp.partition,
            "state": context.partition_status(tp).value,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": list(state.isr),
            "replicas": list(context.replicas(tp)),
            "replica_states": {
                str(broker): context.replica_status(tp, broker).value
                for broker in context.replicas(tp)
            },
            "zk_version": state.state_version,
            "controller_epoch": state.controller_epoch,
        }
        for tp, state in context.leadership.items()
    ]


def encode_preferred_election(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the data of `/admin/preferred_replica_election`, which administrators write (A12)."""
    entries = [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]
    return json.dumps({"version": 1, "partitions": entries}).encode()


class RecordingChannels:
    """Channels that record the controller's requests. `answer` returns a broker's response, or None for no response.

    `unanswered`: the number of requests that the controller takes for unanswered, by broker id.
    """

    def __init__(self) -> None:
        self.open: dict[BrokerId, Broker] = {}
        self.sent: list[tuple[BrokerId, ControllerRequest]] = []
        self.unanswered: dict[BrokerId, int] = {}
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
        return self.unanswered

    def to(self, broker_id: BrokerId, kind: type) -> list[Any]:
        return [
            request for id_, request in self.sent if id_ == broker_id and isinstance(request, kind)
        ]


class Candidate:
    """The controller part of one broker: a ZooKeeper session, a broker registration, channels and the service.

    The session is in memory unless `zookeeper`, another session, is given. `tasks`: the registry that contains
    the tasks of the given session. Keys of `config` are Kafka's, with underscores for dots.
    """

    def __init__(
        self,
        ensemble: ZooKeeperInMemory,
        broker_id: BrokerId,
        zookeeper: Any = None,
        tasks: TaskRegistry | None = None,
        clock: Clock | None = None,
        **config: object,
    ) -> None:
        self.id = broker_id
        self.ensemble = ensemble
        self.zookeeper: Any = zookeeper or InMemoryClient(ensemble)
        self.channels = RecordingChannels()
        self.tasks = tasks or TaskRegistry()
        self.info = Broker(
            broker_id, endpoints("127.0.0.1", 9092 + broker_id, "127.0.0.1", 19092 + broker_id)
        )
        keys = {key.replace("_", "."): value for key, value in config.items()}
        self.config = BrokerConfig.from_mapping({"broker.id": broker_id, **keys})
        self.ledger = RecordingLedger()
        self.gate = StepGate()
        self.refusing: set[BrokerId] = set()
        self.service = ZooKeeperController(
            mode_ports(
                broker_id,
                config=self.config,
                zookeeper=self.zookeeper,
                clock=clock or SystemClock(),
                tasks=self.tasks,
                ledger=self.ledger,
                gate=self.gate,
            ),
            self.channels,
            self.probe,
            self.attend,
        )

    async def probe(self, broker: Broker) -> Probe:
        """Answer every probe as a living broker does, unless the broker is in `refusing`."""
        refused = broker.id in self.refusing
        return Probe(Presence.REFUSED if refused else Presence.PRESENT, "here:1", broker.epoch)

    async def attend(self, broker: Broker) -> None:
        """Wait for ever, as at a living controller, unless the broker is in `refusing`."""
        if broker.id in self.refusing:
            raise ConnectionRefusedError("here:1")
        await asyncio.get_running_loop().create_future()

    async def start(self) -> Candidate:
        await self.connect()
        await self.service.start()
        return self

    async def connect(self) -> None:
        """Begin a ZooKeeper session and register the broker."""
        await self.zookeeper.start()
        await self.register()

    async def register(self) -> None:
        path = layout.broker_path(self.id)
        await self.zookeeper.create(path, layout.encode_broker(self.info), ephemeral=True)

    async def die(self) -> None:
        """End as after a SIGKILL: all tasks end, and the session expires."""
        await self.tasks.close()
        self.ensemble.end_session(self.zookeeper.session_id)

    async def close(self) -> None:
        await self.tasks.close()


class TracedZooKeeper(InMemoryClient):
    """A session that records its watches, reads and writes in `trace`, as (what, path)."""

    def __init__(self, ensemble: ZooKeeperInMemory) -> None:
        super().__init__(ensemble)
        self.trace: list[Event] = []

    async def get(self, path: str, *, watch: bool = False) -> Znode:
        node = await super().get(path, watch=watch)
        self._note("read", path, watch)
        return node

    async def exists(self, path: str, *, watch: bool = False) -> Stat | None:
        stat = await super().exists(path, watch=watch)
        if watch:
            self.trace.append(("watch", path))
        return stat

    async def get_many(self, paths: Any) -> Any:
        nodes = await super().get_many(paths)
        self.trace += [("read", path) for path in paths]
        return nodes

    async def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        names = await super().children(path, watch=watch)
        self._note("list", path, watch)
        return names

    def _note(self, what: str, path: str, watch: bool) -> None:
        if watch:
            self.trace.append(("watch", path))
        self.trace.append((what, path))

    async def multi(self, ops: Any, *, generation: int | None = None) -> list[Stat | None]:
        self.trace += [("write", op.path) for op in ops if not isinstance(op, Check)]
        return await super().multi(ops, generation=generation)

    async def unwatch(self, kind: WatchKind, path: str) -> None:
        self.trace.append(("unwatch", path))
        await super().unwatch(kind, path)


class ControllerBench(Candidate):
    """The elected controller on broker 1. Brokers 2 and 3 are only registrations of other sessions.

    Brokers answer every StopReplica with success at once; brokers in `refuse` never answer. `trace` contains the
    controller's reads, writes, requests, steps and state transitions, in order.
    """

    def __init__(self, clock: Clock | None = None, **config: object) -> None:
        ensemble = new_ensemble()
        super().__init__(ensemble, 1, TracedZooKeeper(ensemble), clock=clock, **config)
        self.trace = self.zookeeper.trace
        self.ledger.record = self._record  # type: ignore[method-assign]
        self.channels.answer = self._answer
        self.refuse: set[int] = set()
        for broker_id in (2, 3):
            self.register_broker(broker_id)

    def _record(self, kind: str, cause: str, fields: Mapping[str, Any]) -> None:
        self.ledger.lines.append((kind, cause, fields))
        if kind == REQUEST:
            self.trace.append(("send", f"{fields['request']} {fields['to']}"))
        elif kind == STEP:
            self.trace.append(("step", f"{fields['operation']}.{fields['step']}"))
        elif kind == DECISION and fields["verdict"] == "move":
            self.trace.append(("move", f"{fields['machine']} to {fields['to']}"))

    def _answer(self, broker_id: int, request: Any) -> ControllerResponse | None:
        if not isinstance(request, StopReplicaRequest) or broker_id in self.refuse:
            return None
        return ControllerResponse(0, tuple((p.tp, 0) for p in request.partitions))

    def register_broker(self, broker_id: int, versions: Versions = VERSIONS) -> None:
        named = endpoints("127.0.0.1", 9092 + broker_id, "127.0.0.1", 19092 + broker_id)
        info = Broker(broker_id, named, versions=versions)
        path = layout.broker_path(broker_id)
        owner = self.ensemble.open_session(100 + broker_id)
        self.ensemble.put(path, layout.encode_broker(info), owner=owner)

    async def elected(self) -> Self:
        """Start, and wait until this broker is the controller and its event queue is empty."""
        await self.start()
        await until(lambda: self.service.is_active)
        await self.idle()
        return self

    async def idle(self) -> None:
        def is_idle() -> bool:
            shown = self.shown()
            return shown.get("state") == "Idle" and not shown["queue_size"]

        await until(is_idle)

    def shown(self) -> dict[str, Any]:
        return describe(self.service)

    def state(self, tp: TopicPartition = T0) -> LeaderAndIsr | None:
        return state_of(self.ensemble, tp)

    async def led(self, leader: int, tp: TopicPartition = T0) -> LeaderAndIsr:
        state: LeaderAndIsr = await until(
            lambda: (s := self.state(tp)) and s.leader == leader and s
        )
        await self.idle()
        return state

    def join(self, *isr: int, tp: TopicPartition = T0) -> None:
        """Write this ISR to the partition's state node, in place of the leader."""
        state = self.state(tp)
        assert state is not None
        grown = LeaderAndIsr(state.leader, state.leader_epoch, isr, state.controller_epoch, 0)
        self.ensemble.put(layout.state_path(tp), layout.encode_state(grown))

    def assignment(self, topic: str = "t") -> dict[int, ReplicaAssignment]:
        return layout.decode_topic(self.ensemble.nodes[layout.topic_path(topic)].data)[1]

    def epoch_of(self, broker_id: int) -> int:
        """Return the broker epoch of the broker's current registration."""
        return self.ensemble.nodes[layout.broker_path(broker_id)].czxid

    def there(self, path: str) -> bool:
        return path in self.ensemble.nodes

    def first(self, what: str, about: str) -> int:
        """Return the index in `trace` of the first event that is the pair (`what`, `about`)."""
        return next(i for i, event in enumerate(self.trace) if event == (what, about))


def new_ensemble() -> ZooKeeperInMemory:
    ensemble = ZooKeeperInMemory()
    for path in layout.PERSISTENT:
        ensemble.put(path)
    return ensemble


def create_topic(ensemble: Znodes, topic: str, *replica_lists: list[int]) -> None:
    assignment = {i: ReplicaAssignment(tuple(replicas)) for i, replicas in enumerate(replica_lists)}
    ensemble.put(layout.topic_path(topic), layout.encode_topic(b"0123456789abcdef", assignment))


def state_of(ensemble: Znodes, tp: TopicPartition) -> LeaderAndIsr | None:
    node = ensemble.nodes.get(layout.state_path(tp))
    return layout.decode_state(node.data, node.version) if node else None


async def until(predicate: Callable[[], Any], seconds: float = 60) -> Any:
    """Poll until the predicate returns a true value, and return that value. Raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not (value := predicate()):  # noqa: ASYNC110  (what it waits for has no event)
            await asyncio.sleep(0.002)
    return value


def reassign(bench: ControllerBench, targets: dict[TopicPartition, list[int]]) -> None:
    bench.ensemble.put(layout.REASSIGN_PARTITIONS, layout.encode_reassignments(targets))


def stops(bench: ControllerBench, broker_id: int) -> list[Any]:
    return [
        partition
        for request in bench.channels.to(broker_id, StopReplicaRequest)
        for partition in request.partitions
    ]
