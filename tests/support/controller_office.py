"""A controller in office over a ZooKeeper in memory, and all it reads, writes and sends in their order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from support.controller_bench import Candidate, new_ensemble, state_of, until
from support.endpoints import endpoints
from support.manual_clock import ManualClock
from support.memory_coordination import Ensemble, MemoryCoordination

from minikafka.base.model import (
    Broker,
    ControllerResponse,
    LeaderAndIsr,
    ReplicaAssignment,
    StopReplicaRequest,
    TopicPartition,
)
from minikafka.base.ports import Check, Stat, WatchKind
from minikafka.ledger.record import DECISION, REQUEST, STEP
from minikafka.zk import layout

T0 = TopicPartition("t", 0)
Event = tuple[str, str]


class Traced(MemoryCoordination):
    """Notes every watch, read and write of its session in `trace`, as (what, path)."""

    def __init__(self, ensemble: Ensemble) -> None:
        super().__init__(ensemble)
        self.trace: list[Event] = []

    def _arm(self, kind: WatchKind, path: str, watch: bool) -> None:
        if watch:
            self.trace.append(("watch", path))
        super()._arm(kind, path, watch)

    async def get(self, path: str, *, watch: bool = False) -> tuple[bytes, Stat]:
        node = await super().get(path, watch=watch)
        self.trace.append(("read", path))
        return node

    async def get_many(self, paths: Any) -> Any:
        nodes = await super().get_many(paths)
        self.trace += [("read", path) for path in paths]
        return nodes

    async def children(self, path: str, *, watch: bool = False) -> tuple[list[str], Stat]:
        names = await super().children(path, watch=watch)
        self.trace.append(("list", path))
        return names

    async def multi(self, ops: Any, *, generation: int | None = None) -> list[Stat | None]:
        self.trace += [("write", op.path) for op in ops if not isinstance(op, Check)]
        return await super().multi(ops, generation=generation)

    async def unwatch(self, kind: WatchKind, path: str) -> None:
        self.trace.append(("unwatch", path))
        await super().unwatch(kind, path)


class Office:
    """A controller candidate on broker 1, with brokers 2 and 3 as registrations of other sessions.

    Brokers answer every StopReplica with success at once, unless `refuse` names them.
    """

    def __init__(self, clock: ManualClock | None = None, **config: object) -> None:
        self.ensemble = new_ensemble()
        self.coordination = Traced(self.ensemble)
        self.trace = self.coordination.trace
        self.candidate = Candidate(self.ensemble, 1, self.coordination, clock=clock, **config)
        self.candidate.ledger.record = self._record  # type: ignore[method-assign]
        self.candidate.channels.answer = self._answer
        self.refuse: set[int] = set()
        for broker_id in (2, 3):
            self.register(broker_id)

    def _record(self, kind: str, cause: str, fields: Mapping[str, Any]) -> None:
        self.candidate.ledger.lines.append((kind, cause, fields))
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

    def register(self, broker_id: int) -> None:
        info = Broker(
            broker_id, endpoints("127.0.0.1", 9092 + broker_id, "127.0.0.1", 19092 + broker_id)
        )
        path = layout.broker_path(broker_id)
        self.ensemble.put(path, layout.encode_broker(info))
        self.ensemble.nodes[path].owner = 100 + broker_id

    async def start(self) -> Office:
        await self.candidate.start()
        await until(lambda: self.candidate.service.is_active)
        await self.idle()
        return self

    async def idle(self) -> None:
        def settled() -> bool:
            shown = self.shown()
            return shown.get("state") == "Idle" and not shown["queue_size"]

        await until(settled)

    def shown(self) -> dict[str, Any]:
        return self.candidate.service.describe()

    def state(self, tp: TopicPartition = T0) -> LeaderAndIsr | None:
        return state_of(self.ensemble, tp)

    async def led(self, leader: int, tp: TopicPartition = T0) -> LeaderAndIsr:
        state: LeaderAndIsr = await until(
            lambda: (s := self.state(tp)) and s.leader == leader and s
        )
        await self.idle()
        return state

    def join(self, *isr: int, tp: TopicPartition = T0) -> None:
        """The leader takes these into the ISR."""
        state = self.state(tp)
        assert state is not None
        grown = LeaderAndIsr(state.leader, state.leader_epoch, isr, state.controller_epoch, 0)
        self.ensemble.put(layout.state_path(tp), layout.encode_state(grown))

    def assignment(self, topic: str = "t") -> dict[int, ReplicaAssignment]:
        return layout.decode_topic(self.ensemble.nodes[layout.topic_path(topic)].data)[1]

    def epoch_of(self, broker_id: int) -> int:
        """The broker epoch of its registration."""
        return self.ensemble.nodes[layout.broker_path(broker_id)].czxid

    def there(self, path: str) -> bool:
        return path in self.ensemble.nodes

    def first(self, what: str, about: str) -> int:
        """The place of the first such event in the trace."""
        return next(i for i, event in enumerate(self.trace) if event == (what, about))


def reassign(office: Office, targets: dict[TopicPartition, list[int]]) -> None:
    office.ensemble.put(layout.REASSIGN_PARTITIONS, layout.encode_reassignments(targets))


def stops(office: Office, broker_id: int) -> list[Any]:
    return [
        partition
        for request in office.candidate.channels.to(broker_id, StopReplicaRequest)
        for partition in request.partitions
    ]
