"""A term in office as ZooKeeper, the brokers and the ledger see it: what comes when, what is read and watched."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from support.controller_bench import Candidate, create_topic, new_ensemble, state_of, until
from support.manual_clock import ManualClock
from support.memory_coordination import Ensemble, MemoryCoordination

from minikafka.base.errors import ErrorCode, MultiFailed, NoNode
from minikafka.base.model import (
    Broker,
    ControllerResponse,
    LeaderAndIsr,
    LeaderAndIsrRequest,
    ReplicaAssignment,
    StopReplicaRequest,
    TopicPartition,
    UpdateMetadataRequest,
)
from minikafka.base.ports import Check, Create, Delete, MultiOp, Set, Stat, WatchKind
from minikafka.ledger.record import DECISION, EVENT, REQUEST, STEP
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
        info = Broker(broker_id, "127.0.0.1", 9092 + broker_id, "127.0.0.1", 19092 + broker_id)
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

    def there(self, path: str) -> bool:
        return path in self.ensemble.nodes

    def first(self, what: str, about: str) -> int:
        """The place of the first such event in the trace."""
        return next(i for i, event in enumerate(self.trace) if event == (what, about))


@pytest.fixture
async def office() -> AsyncIterator[Office]:
    office = await Office().start()
    yield office
    await office.candidate.close()


def reassign(office: Office, targets: dict[TopicPartition, list[int]]) -> None:
    office.ensemble.put(layout.REASSIGN_PARTITIONS, layout.encode_reassignments(targets))


@pytest.mark.row("D2", "D3", "D5", "D6", "D16", "D17", "T8", "T9", "R18")
async def test_a_new_controller_does_everything_in_the_order_of_row_d5() -> None:
    office = Office()
    ensemble = office.ensemble
    create_topic(ensemble, "t", [9, 2])
    ensemble.put(layout.state_path(T0), layout.encode_state(LeaderAndIsr(9, 4, (9, 2), 0, 0)))
    create_topic(ensemble, "gone", [3])
    ensemble.put(layout.delete_topic_path("gone"))
    create_topic(ensemble, "r", [2])
    office.ensemble.put(layout.CONTROLLER_EPOCH, b"6")
    reassign(office, {TopicPartition("r", 0): [3]})
    preferred = layout.encode_preferred_election([T0])
    ensemble.put(layout.PREFERRED_ELECTION, preferred)
    stale = layout.ISR_CHANGE_PREFIX + "0000000003"
    ensemble.put(stale, layout.encode_isr_change([T0]))
    await office.start()
    order = [
        ("watch", layout.CONTROLLER),
        ("write", layout.CONTROLLER),
        ("write", layout.CONTROLLER_EPOCH),
        ("watch", layout.REASSIGN_PARTITIONS),
        ("watch", layout.ISR_CHANGES),
        ("write", stale),
        ("watch", layout.PREFERRED_ELECTION),
        ("watch", layout.TOPICS),
        ("watch", layout.DELETE_TOPICS),
        ("watch", layout.BROKER_IDS),
        ("read", layout.broker_path(2)),
        ("read", layout.topic_path("t")),
        ("read", layout.state_path(T0)),
        ("send", "UpdateMetadata 1"),
        ("send", "LeaderAndIsr 2"),
        ("write", layout.state_path(T0)),
        ("step", "reassignment.U1"),
        ("step", "deletion.partitions-gone"),
        ("write", layout.PREFERRED_ELECTION),
    ]
    places = [office.first(*event) for event in order]
    assert places == sorted(places), [office.trace[i] for i in sorted(places)]
    moved = [about for what, about in office.trace if what == "move"]
    assert moved.index("replica to OnlineReplica") < moved.index("partition to OnlinePartition")
    assert office.candidate.service.epoch == 7
    assert await office.led(2)
    told = {to for to, r in office.candidate.channels.sent if isinstance(r, UpdateMetadataRequest)}
    assert told == {1, 2, 3}
    await office.candidate.close()


@pytest.mark.row("T8")
async def test_all_that_a_new_controller_reads_it_watches_first() -> None:
    office = Office()
    create_topic(office.ensemble, "t", [2, 3])
    await office.start()
    for path in (layout.TOPICS, layout.BROKER_IDS, layout.DELETE_TOPICS, layout.ISR_CHANGES):
        assert office.first("watch", path) < office.first("list", path)
    for path in (layout.topic_path("t"), layout.broker_path(2)):
        assert office.first("watch", path) < office.first("read", path)
    await office.candidate.close()


@pytest.mark.row("T8", "E2")
async def test_what_changes_while_the_controller_loads_is_not_missed() -> None:
    office = Office()
    create_topic(office.ensemble, "t", [2, 3])
    read = office.coordination.get_many

    async def meanwhile(paths: Any) -> Any:
        office.coordination.get_many = read  # type: ignore[method-assign]
        create_topic(office.ensemble, "u", [3])
        office.ensemble.delete(layout.broker_path(2))
        return await read(paths)

    office.coordination.get_many = meanwhile  # type: ignore[method-assign]
    await office.start()
    assert await office.led(3)
    assert await office.led(3, TopicPartition("u", 0))
    await office.candidate.close()


@pytest.mark.row("D6", "B5", "B6")
async def test_the_picture_is_what_zookeeper_holds() -> None:
    office = Office()
    create_topic(office.ensemble, "t", [2, 3], [3, 1])
    create_topic(office.ensemble, "gone", [9])
    office.ensemble.put(layout.delete_topic_path("gone"))
    await office.start()
    reassign(office, {T0: [1, 3]})
    await until(lambda: office.shown()["reassignments"])
    await office.idle()
    shown = office.shown()
    assert set(shown["brokers"]) == {"1", "2", "3"}
    assert shown["shutting_down"] == []
    assert shown["topics_marked_for_deletion"] == ["gone"]
    assert "gone" in shown["topics_ineligible_for_deletion"]
    assert shown["reassignments"][0]["adding_replicas"] == [1]
    for row in shown["partitions"]:
        state = office.state(TopicPartition(row["topic"], row["partition"]))
        assert state is not None
        assert (row["leader"], tuple(row["isr"])) == (state.leader, state.isr)
        assert (row["leader_epoch"], row["zk_version"]) == (state.leader_epoch, state.zk_version)
        assert row["controller_epoch"] == state.controller_epoch
    assert len(shown["partitions"]) == 2
    await office.candidate.close()


@pytest.mark.row("D7", "M2", "X20", "C29")
async def test_leaders_are_balanced_five_seconds_after_the_election_and_at_every_interval() -> None:
    clock = ManualClock()
    office = await Office(clock, leader_imbalance_check_interval_seconds=30).start()
    assert await imbalanced(office) == 3
    clock.advance(4_999)
    await office.idle()
    assert office.state().leader == 3  # type: ignore[union-attr]
    clock.advance(1)
    await office.led(2)
    assert await imbalanced(office) == 3
    await pass_time(clock, 29_999)
    await office.idle()
    assert office.state().leader == 3  # type: ignore[union-attr]
    await pass_time(clock, 1)
    await office.led(2)
    await office.candidate.close()


async def pass_time(clock: ManualClock, ms: int) -> None:
    """In steps, so that who sleeps again is woken again."""
    for step in [1_000] * (ms // 1_000) + [ms % 1_000]:
        clock.advance(step)
        for _ in range(5):
            await asyncio.sleep(0)


async def imbalanced(office: Office) -> int:
    """Let broker 3 lead the partition that prefers broker 2; who leads."""
    if not office.there(layout.topic_path("t")):
        create_topic(office.ensemble, "t", [2, 3])
        await office.led(2)
    state = office.state()
    assert state is not None
    if state.leader == 2:
        office.ensemble.delete(layout.broker_path(2))
        await office.led(3)
        office.register(2)
        await until(lambda: "2" in office.shown()["brokers"])
        await office.idle()
        office.join(3, 2)
        office.ensemble.put(layout.ISR_CHANGE_PREFIX + "1", layout.encode_isr_change([T0]))
        await until(lambda: not office.ensemble.children(layout.ISR_CHANGES))
        await office.idle()
    state = office.state()
    assert state is not None
    return state.leader


@pytest.mark.row("M2", "D7")
async def test_without_the_setting_nobody_balances() -> None:
    clock = ManualClock()
    office = await Office(clock, auto_leader_rebalance_enable=False).start()
    assert await imbalanced(office) == 3
    await pass_time(clock, 700_000)
    await office.idle()
    assert office.state().leader == 3  # type: ignore[union-attr]
    await office.candidate.close()


@pytest.mark.row("D10", "D8", "F10", "E10")
async def test_resignation_drops_the_watches_in_the_order_of_row_d10(office: Office) -> None:
    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    reassign(office, {T0: [1, 3]})
    await until(lambda: (WatchKind.DATA, layout.state_path(T0)) in office.coordination.watched())
    office.trace.clear()
    office.ensemble.put(layout.CONTROLLER, layout.encode_controller(7, 0))
    await until(lambda: ("unwatch", layout.BROKER_IDS) in office.trace)
    order = [
        layout.ISR_CHANGES,
        layout.REASSIGN_PARTITIONS,
        layout.PREFERRED_ELECTION,
        layout.state_path(T0),
        layout.TOPICS,
        layout.topic_path("t"),
        layout.DELETE_TOPICS,
        layout.BROKER_IDS,
    ]
    places = [office.first("unwatch", path) for path in order]
    assert places == sorted(places)
    await until(lambda: office.coordination.watched() == {(WatchKind.EXISTS, layout.CONTROLLER)})
    assert office.candidate.channels.open == {}
    shown = office.shown()
    assert not shown["is_active"]
    assert shown["partitions"] == []
    assert "state" not in shown


@pytest.mark.row("D11", "F10", "D1")
async def test_gauges_count_where_the_controller_is_and_are_0_elsewhere(office: Office) -> None:
    other = await Candidate(office.ensemble, 4).start()
    await until(lambda: other.service.controller_id == 1)
    create_topic(office.ensemble, "t", [2], [3, 2])
    await office.led(2)
    office.ensemble.delete(layout.broker_path(3))
    await office.led(2, TopicPartition("t", 1))
    office.ensemble.delete(layout.broker_path(2))
    await office.led(-1)
    names = ("offline_partition_count", "preferred_replica_imbalance_count", "partition_count")
    assert [office.shown()[name] for name in names] == [2, 2, 2]
    assert [other.service.describe()[name] for name in names] == [0, 0, 0]
    assert other.service.describe()["partitions"] == []
    office.ensemble.put(layout.CONTROLLER, layout.encode_controller(7, 0))
    await until(lambda: not office.candidate.service.is_active)
    assert [office.shown()[name] for name in names] == [0, 0, 0]
    await other.close()


@pytest.mark.row("D14", "R13")
async def test_events_wait_in_one_queue_and_are_handled_in_their_order(office: Office) -> None:
    gate = office.candidate.gate
    gate.hold("creation.partitions-new")
    create_topic(office.ensemble, "t", [2, 3])
    await until(lambda: gate.waiting)
    lines = office.candidate.ledger.lines
    before = sum(kind == EVENT for kind, _, _ in lines)
    assert office.shown()["state"] == "TopicChange"
    office.ensemble.put(layout.delete_topic_path("none"))
    office.ensemble.delete(layout.broker_path(3))
    service = office.candidate.service
    waiting = asyncio.gather(
        service.elect_leaders(unclean=False, partitions=[T0]),
        service.alter_reassignments({T0: (3, 9)}),
    )
    await until(lambda: office.shown()["queue_size"] == 4)
    assert sum(kind == EVENT for kind, _, _ in lines) == before, "one at a time"
    gate.release("creation.partitions-new")
    await waiting
    await office.idle()
    events = [fields["event"] for kind, _, fields in lines if kind == EVENT][before:]
    assert events[:4] == [
        "DeletionsChanged",
        "BrokersChanged",
        "ElectionRequested",
        "ReassignmentsRequested",
    ]
    causes = [cause for kind, cause, _ in lines if kind == EVENT]
    assert causes == [f"1-{number + 1}" for number in range(len(causes))]


@pytest.mark.row("R13")
async def test_who_waits_for_an_answer_hears_when_the_controller_resigns(office: Office) -> None:
    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    office.candidate.gate.hold("reassignment.U2")
    waiting = asyncio.gather(
        office.candidate.service.alter_reassignments({T0: (1, 3)}), return_exceptions=True
    )
    await until(lambda: office.candidate.gate.waiting)
    office.coordination.expire()
    (error,) = await waiting
    assert getattr(error, "code", None) is ErrorCode.NOT_CONTROLLER
    office.candidate.gate.release("reassignment.U2")
    await until(lambda: office.candidate.channels.open == {})


@pytest.mark.row("I1", "E2", "E3")
async def test_a_new_topic_is_watched_and_created_and_its_added_partitions_too(
    office: Office,
) -> None:
    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    assert (WatchKind.DATA, layout.topic_path("t")) in office.coordination.watched()
    create_topic(office.ensemble, "t", [2, 3], [3, 2])
    await office.led(3, TopicPartition("t", 1))
    assert (WatchKind.DATA, layout.topic_path("t")) in office.coordination.watched()


def zookeeper_writes(multis: list[Any]) -> list[tuple[str, MultiOp]]:
    """(path, operation) of each write, after the check that leads each multi."""
    writes = []
    for ops in multis:
        assert isinstance(ops[0], Check)
        assert ops[0].path == layout.CONTROLLER_EPOCH
        writes += [(op.path, op) for op in ops[1:]]
    return writes


@pytest.mark.row("E4", "E10", "I5", "I6", "A9", "A11", "C31", "X14", "R2")
async def test_a_submitted_reassignment_is_written_step_by_step_and_its_assignment_last(
    office: Office,
) -> None:
    create_topic(office.ensemble, "t", [2])
    await office.led(2)
    office.coordination.multis.clear()
    reassign(office, {T0: [3]})
    await until(lambda: office.assignment()[0].adding == (3,))
    await office.idle()
    watched = (WatchKind.DATA, layout.state_path(T0))
    assert watched in office.coordination.watched()
    assert office.assignment()[0] == ReplicaAssignment((3, 2), adding=(3,), removing=(2,))
    assert office.there(layout.REASSIGN_PARTITIONS)
    office.join(2, 3)
    await until(lambda: not office.there(layout.REASSIGN_PARTITIONS))
    await office.idle()
    assert watched not in office.coordination.watched()
    assert office.assignment()[0] == ReplicaAssignment((3,))
    assert office.state().isr == (3,)  # type: ignore[union-attr]
    writes = zookeeper_writes(office.coordination.multis)
    topic, state, admin = layout.topic_path("t"), layout.state_path(T0), layout.REASSIGN_PARTITIONS
    assert [path for path, _ in writes] == [topic, state, state, state, topic, admin]
    states = [layout.decode_state(op.data, 0) for path, op in writes if path == state]  # type: ignore[union-attr]
    assert [(s.leader, s.isr) for s in states] == [(2, (2,)), (3, (2, 3)), (3, (3,))]
    assert isinstance(writes[-1][1], Delete)
    stops = [p for r in office.candidate.channels.to(2, StopReplicaRequest) for p in r.partitions]
    assert [p.delete for p in stops] == [False, True]


@pytest.mark.row("A11", "X12")
async def test_the_admin_node_loses_each_partition_that_is_done_and_goes_with_the_last(
    office: Office,
) -> None:
    t1 = TopicPartition("t", 1)
    create_topic(office.ensemble, "t", [2], [3])
    await office.led(3, t1)
    reassign(office, {T0: [3], t1: [2], TopicPartition("none", 0): [1]})

    def asked() -> set[TopicPartition]:
        node = office.ensemble.nodes.get(layout.REASSIGN_PARTITIONS)
        return set(layout.decode_reassignments(node.data)) if node else set()

    await until(lambda: asked() == {T0, t1})
    await office.idle()
    office.join(2, 3)
    await until(lambda: asked() == {t1})
    await office.idle()
    office.join(3, 2, tp=t1)
    await until(lambda: not office.there(layout.REASSIGN_PARTITIONS))


@pytest.mark.row("R60", "T8")
async def test_a_submission_right_after_the_deletion_of_the_admin_node_is_not_lost(
    office: Office,
) -> None:
    create_topic(office.ensemble, "t", [2])
    create_topic(office.ensemble, "u", [2])
    u0 = TopicPartition("u", 0)
    await office.led(2, u0)
    multi = office.coordination.multi

    async def then_submit(ops: Any, **session: Any) -> Any:
        stats = await multi(ops, **session)
        if any(isinstance(op, Delete) and op.path == layout.REASSIGN_PARTITIONS for op in ops):
            office.coordination.multi = multi  # type: ignore[method-assign]
            reassign(office, {u0: [3]})
        return stats

    reassign(office, {T0: [3]})
    await until(lambda: office.assignment()[0].adding == (3,))
    await office.idle()
    office.coordination.multi = then_submit  # type: ignore[method-assign]
    office.join(2, 3)
    await until(lambda: office.assignment("u")[0].adding == (3,))


@pytest.mark.row("E5", "A12", "X26", "I7")
async def test_a_preferred_election_by_znode_is_carried_out_and_the_node_removed(
    office: Office,
) -> None:
    assert await imbalanced(office) == 3
    office.ensemble.put(layout.PREFERRED_ELECTION, layout.encode_preferred_election([T0]))
    await office.led(2)
    await until(lambda: not office.there(layout.PREFERRED_ELECTION))


@pytest.mark.row("X26", "R61", "I7")
async def test_a_preferred_election_by_request_is_answered_per_partition(office: Office) -> None:
    assert await imbalanced(office) == 3
    elect = office.candidate.service.elect_leaders
    none = TopicPartition("none", 0)
    results = await elect(unclean=False, partitions=[T0, none])
    assert results[T0].code is ErrorCode.NONE
    assert results[none].code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert office.state().leader == 2  # type: ignore[union-attr]
    again = await elect(unclean=False, partitions=None)
    assert again[T0].code is ErrorCode.ELECTION_NOT_NEEDED


@pytest.mark.row("E7", "A13", "A16", "J5", "L1", "R64", "G8")
async def test_a_marked_topic_goes_when_the_last_broker_has_answered_and_the_mark_last(
    office: Office,
) -> None:
    create_topic(office.ensemble, "t", [2, 3])
    office.ensemble.put(layout.topic_config_path("t"), layout.encode_config({}))
    await office.led(2)
    office.refuse = {3}
    office.coordination.multis.clear()
    office.ensemble.put(layout.delete_topic_path("t"))
    await until(lambda: any(p.delete for p in stops(office, 3)))
    await office.idle()
    assert office.there(layout.topic_path("t")), "broker 3 has not answered"
    assert office.there(layout.state_path(T0))
    office.refuse = set()
    office.ensemble.delete(layout.broker_path(3))
    await until(lambda: "3" not in office.shown()["brokers"])
    await office.idle()
    assert office.shown()["topics_ineligible_for_deletion"] == {"t": "offline replicas"}
    office.register(3)
    await until(lambda: not office.there(layout.delete_topic_path("t")))
    assert not office.there(layout.topic_path("t"))
    assert not office.there(layout.topic_config_path("t"))
    paths = [
        path for path, op in zookeeper_writes(office.coordination.multis) if isinstance(op, Delete)
    ]
    assert paths[-3:] == [
        layout.topic_path("t"),
        layout.topic_config_path("t"),
        layout.delete_topic_path("t"),
    ]


def stops(office: Office, broker_id: int) -> list[Any]:
    return [
        partition
        for request in office.candidate.channels.to(broker_id, StopReplicaRequest)
        for partition in request.partitions
    ]


@pytest.mark.row("R65")
async def test_a_mark_of_an_unknown_topic_is_removed(office: Office) -> None:
    office.ensemble.put(layout.delete_topic_path("none"))
    await until(lambda: not office.there(layout.delete_topic_path("none")))


@pytest.mark.row("L6", "D18")
async def test_the_next_controller_goes_on_with_what_the_last_one_had_begun(office: Office) -> None:
    create_topic(office.ensemble, "t", [2])
    create_topic(office.ensemble, "gone", [3])
    await office.led(2)
    office.refuse = {3}
    office.ensemble.put(layout.delete_topic_path("gone"))
    reassign(office, {T0: [3]})
    await until(lambda: office.assignment()[0].adding == (3,) and any(stops(office, 3)))
    await office.idle()
    await office.candidate.die()
    office.join(2, 3)
    successor = Candidate(office.ensemble, 4)
    successor.channels.answer = office._answer
    office.refuse = set()
    await successor.start()
    await until(lambda: not office.there(layout.topic_path("gone")))
    await until(lambda: not office.there(layout.REASSIGN_PARTITIONS))
    assert office.assignment()[0] == ReplicaAssignment((3,))
    assert successor.service.epoch == 2
    await successor.close()


@pytest.mark.row("X10", "R22")
async def test_the_address_of_a_live_broker_is_watched(office: Office) -> None:
    assert (WatchKind.DATA, layout.broker_path(2)) in office.coordination.watched()
    assert (WatchKind.CHILDREN, layout.LOG_DIR_EVENTS) in office.coordination.watched()
    moved = Broker(2, "elsewhere", 1, "elsewhere", 2)
    office.ensemble.put(layout.broker_path(2), layout.encode_broker(moved))
    await until(
        lambda: any(
            "elsewhere" in {b.host for b in request.live_brokers}
            for request in office.candidate.channels.to(3, UpdateMetadataRequest)
        )
    )


@pytest.mark.row("A10", "X21", "X22")
async def test_a_state_node_has_kafkas_five_fields_and_an_epoch_of_its_own(office: Office) -> None:
    create_topic(office.ensemble, "t", [2, 3], [3, 2])
    await office.led(3, TopicPartition("t", 1))
    office.ensemble.delete(layout.broker_path(2))
    await office.led(3)
    await until(lambda: office.state(TopicPartition("t", 1)).isr == (3,))  # type: ignore[union-attr]
    create_topic(office.ensemble, "u", [3])
    await office.led(3, TopicPartition("u", 0))
    found = json.loads(office.ensemble.nodes[layout.state_path(T0)].data)
    assert set(found) == {"controller_epoch", "leader", "leader_epoch", "isr", "version"}
    assert office.ensemble.nodes[layout.state_path(T0)].version == 1
    epochs = [office.state(TopicPartition(*tp)).leader_epoch for tp in (("t", 0), ("u", 0))]  # type: ignore[union-attr]
    assert epochs == [1, 0]


@pytest.mark.row("D12", "R4")
async def test_a_state_of_a_higher_controller_epoch_is_left_alone(office: Office) -> None:
    create_topic(office.ensemble, "t", [2, 3])
    await office.led(2)
    newer = layout.encode_state(LeaderAndIsr(2, 5, (2, 3), 99, 0))
    office.ensemble.put(layout.state_path(T0), newer)
    office.ensemble.delete(layout.broker_path(2))
    await until(lambda: "2" not in office.shown()["brokers"])
    await office.idle()
    assert office.ensemble.nodes[layout.state_path(T0)].data == newer


@pytest.mark.row("D13", "R3")
async def test_an_election_that_a_leaders_own_write_overtakes_is_held_again(office: Office) -> None:
    create_topic(office.ensemble, "t", [2, 3, 1])
    await office.led(2)

    def overtake(ops: Any) -> None:
        if any(isinstance(op, Set) and op.path == layout.state_path(T0) for op in ops):
            office.coordination.before_multi = lambda ops: None
            office.join(2, 1)

    office.coordination.before_multi = overtake
    office.ensemble.delete(layout.broker_path(2))
    state = await office.led(1)
    assert state.isr == (1,), "broker 3 had left the ISR meanwhile"


@pytest.mark.row("J1", "T4", "J4")
async def test_brokers_get_one_request_of_each_kind_however_many_partitions(
    office: Office,
) -> None:
    create_topic(office.ensemble, "t", *([2, 3] for _ in range(30)))
    await office.led(2, TopicPartition("t", 29))
    assert len(office.candidate.channels.to(2, LeaderAndIsrRequest)) == 1
    sent = [type(r) for to, r in office.candidate.channels.sent if to == 3]
    assert sent[-2:] == [LeaderAndIsrRequest, UpdateMetadataRequest]
    assert all(isinstance(op, Check | Create) for op in office.coordination.multis[-1])


@pytest.mark.row("D4", "R12")
async def test_an_election_that_fails_for_another_reason_leaves_nobody_and_is_held_again() -> None:
    office = Office()
    multi = office.coordination.multi

    async def refused(ops: Any, **session: Any) -> Any:
        office.coordination.multi = multi  # type: ignore[method-assign]
        raise MultiFailed(0, NoNode("/"))

    office.coordination.multi = refused  # type: ignore[method-assign]
    await office.candidate.start()
    await until(lambda: office.coordination.multi == multi)
    assert not office.candidate.service.is_active
    assert not office.there(layout.CONTROLLER)
    await until(lambda: office.candidate.service.is_active)
    assert office.candidate.service.epoch == 1
    await office.candidate.close()


@pytest.mark.row("D4", "R12")
async def test_a_controller_that_breaks_takes_its_node_away(office: Office) -> None:
    session = office.ensemble.nodes[layout.CONTROLLER].czxid
    term = office.candidate.service._term
    assert term is not None

    def broken(*_: Any) -> Any:
        raise RuntimeError("illegal state")

    term.machine.handle = broken  # type: ignore[method-assign]
    create_topic(office.ensemble, "t", [2])
    await until(lambda: office.candidate.service.epoch == 2 and office.candidate.service.is_active)
    assert office.ensemble.nodes[layout.CONTROLLER].czxid > session, "deleted, and made anew"
    await office.led(2)


@pytest.mark.row("R11")
async def test_many_reads_and_writes_are_under_way_at_once_and_never_too_many() -> None:
    office = Office()
    for number in range(600):
        create_topic(office.ensemble, f"t{number}", [2, 3])
    reads = Gauge(office.coordination, "get")
    multis = Gauge(office.coordination, "multi")
    await office.start()
    await office.led(2, TopicPartition("t599", 0))
    assert 100 < reads.most <= 256
    assert 1 < multis.most <= 4
    largest = max(len(ops) for ops in office.coordination.multis)
    assert largest <= 201
    await office.candidate.close()


class Gauge:
    """How many calls of one method are under way at most."""

    def __init__(self, coordination: Traced, name: str) -> None:
        self.most = self.now = 0
        self._call = getattr(coordination, name)
        setattr(coordination, name, self._counted)

    async def _counted(self, *args: Any, **kwargs: Any) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self._call(*args, **kwargs)
        finally:
            self.now -= 1
