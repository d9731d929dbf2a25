"""Fenced writes to ZooKeeper: races, lost responses and refusals (R2, R3)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.brokers.controller_bench import new_ensemble, state_of
from support.ledger.recording_ledger import RecordingLedger

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ControllerMoved, OutcomeUnknown, StaleSession, TooLarge
from minikafka.base.model import LeaderAndIsr, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Check
from minikafka.broker.modes.controller.terms.state_writes import write_states
from minikafka.broker.modes.controller.terms.store import ControllerStore
from minikafka.broker.modes.controller.terms.term_session import TermSession
from minikafka.deciders.controller.commands import NO_NODE
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import layout, partition_states


class Bench:
    def __init__(self) -> None:
        self.ensemble: ZooKeeperInMemory = new_ensemble()
        self.ensemble.put(layout.CONTROLLER_EPOCH, b"1")
        self.zookeeper = InMemoryClient(self.ensemble)
        self.ledger = RecordingLedger()
        config = BrokerConfig.from_mapping({"broker.id": 1})
        self.store = ControllerStore(TermSession(self.zookeeper, 1, 0, self.ledger), config)

    def topic(self, topic: str, partitions: int = 0) -> list[TopicPartition]:
        """Create a topic node, and state nodes for this number of partitions."""
        self.ensemble.put(layout.topic_path(topic), b"{}")
        tps = [TopicPartition(topic, i) for i in range(partitions)]
        for tp in tps:
            self.ensemble.put(layout.state_path(tp), layout.encode_state(state(0)))
        return tps


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    await bench.zookeeper.attach()
    return bench


def state(version: int, leader: int = 1, epoch: int = 0) -> LeaderAndIsr:
    return LeaderAndIsr(leader, epoch, (leader,), 1, version)


@pytest.mark.row("R2")
async def test_new_partition_states_are_written_with_parent_nodes_in_one_multi(
    bench: Bench,
) -> None:
    bench.topic("t")
    tps = [TopicPartition("t", i) for i in range(3)]
    written = await write_states(bench.store.session, {tp: state(NO_NODE) for tp in tps})
    assert written.ok == dict.fromkeys(tps, 0)
    (multi,) = bench.zookeeper.multis
    assert multi[0] == Check(layout.CONTROLLER_EPOCH, 0)
    assert state_of(bench.ensemble, tps[2]) == state(0)


@pytest.mark.row("R2", "R11")
async def test_large_writes_are_split_into_fenced_multis(bench: Bench) -> None:
    bench.topic("t")
    tps = [TopicPartition("t", i) for i in range(500)]
    created = await write_states(bench.store.session, {tp: state(NO_NODE) for tp in tps})
    assert (len(created.ok), created.conflicts, created.failed) == (500, (), {})
    updated = await write_states(
        bench.store.session, {tp: state(0, leader=2, epoch=1) for tp in tps}
    )
    assert set(updated.ok.values()) == {1}
    assert all(len(ops) <= 200 and isinstance(ops[0], Check) for ops in bench.zookeeper.multis)


def by_hand(bench: Bench, topic: str, topic_id: bytes | None = None) -> None:
    assignment = {0: ReplicaAssignment((1, 2)), 7: ReplicaAssignment((2, 3), (3,), (2,))}
    bench.ensemble.put(layout.topic_path(topic), layout.encode_topic(topic_id, assignment))


def node_of(bench: Bench, topic: str) -> tuple[bytes | None, dict[int, ReplicaAssignment]]:
    return layout.decode_topic(bench.ensemble.nodes[layout.topic_path(topic)].data)


@pytest.mark.row("R69", "R2")
async def test_topic_without_an_id_gets_an_id_and_keeps_its_replica_assignment(
    bench: Bench,
) -> None:
    by_hand(bench, "t")
    assignment = node_of(bench, "t")[1]
    ids = await bench.store.give_topic_ids({"t": None, "gone": None})
    assert node_of(bench, "t") == (ids["t"], assignment)
    assert list(ids) == ["t"]
    assert all(isinstance(ops[0], Check) for ops in bench.zookeeper.multis)


@pytest.mark.row("R69")
async def test_existing_topic_id_is_kept(bench: Bench) -> None:
    by_hand(bench, "t", b"0123456789abcdef")
    given = await bench.store.give_topic_ids({"t": None})
    assert given == {"t": b"0123456789abcdef"}
    assert not bench.zookeeper.multis


@pytest.mark.row("R69")
async def test_topic_without_an_id_gets_its_known_former_id_but_never_a_new_id(
    bench: Bench,
) -> None:
    bench.topic("t", 1)
    by_hand(bench, "t")
    assert await bench.store.give_topic_ids({"t": None}) == {}
    known = {"t": b"0123456789abcdef"}
    assert await bench.store.give_topic_ids(dict(known)) == known
    assert node_of(bench, "t")[0] == b"0123456789abcdef"


@pytest.mark.row("T7", "X23")
async def test_version_of_a_written_partition_state_is_that_returned_by_zookeeper(
    bench: Bench,
) -> None:
    (tp,) = bench.topic("t", 1)
    for _ in range(4):
        bench.ensemble.put(layout.state_path(tp), b"x")
    written = await write_states(bench.store.session, {tp: state(4)})
    assert written.ok == {tp: 5}


@pytest.mark.row("R3")
async def test_conflicting_partition_states_are_left_out_when_a_failed_multi_is_repeated(
    bench: Bench,
) -> None:
    tps = bench.topic("t", 6)
    for tp in tps[:3]:
        bench.ensemble.put(layout.state_path(tp), b"moved on")
    gone = tps[3]
    bench.ensemble.delete(layout.state_path(gone))
    written = await write_states(bench.store.session, {tp: state(0, epoch=1) for tp in tps})
    assert set(written.conflicts) == set(tps[:3])
    assert set(written.failed) == {gone}
    assert set(written.ok) == set(tps[4:])
    assert len(bench.zookeeper.multis) == 2


@pytest.mark.row("R3")
async def test_existing_state_node_fails_the_write_of_that_partition_only(
    bench: Bench,
) -> None:
    (there,) = bench.topic("t", 1)
    new = TopicPartition("t", 1)
    written = await write_states(
        bench.store.session, {there: state(NO_NODE, leader=9), new: state(NO_NODE)}
    )
    assert set(written.failed) == {there}
    assert written.ok == {new: 0}


async def test_missing_topic_fails_the_state_writes_of_that_topic_only(bench: Bench) -> None:
    bench.topic("t")
    lost, kept = TopicPartition("gone", 0), TopicPartition("t", 0)
    written = await write_states(bench.store.session, {lost: state(NO_NODE), kept: state(NO_NODE)})
    assert set(written.failed) == {lost}
    assert written.ok == {kept: 0}


async def test_parent_node_of_300_partition_states_is_created_once(
    bench: Bench,
) -> None:
    bench.topic("t")
    tps = [TopicPartition("t", number) for number in range(300)]
    written = await write_states(bench.store.session, {tp: state(NO_NODE) for tp in tps})
    assert set(written.ok) == set(tps)
    multis = bench.zookeeper.multis
    paths = [op.path for ops in multis for op in ops]
    assert paths.count(layout.partitions_path("t")) == 1
    assert max(map(len, multis)) <= 200


async def test_all_partition_states_are_written_after_the_first_multi_was_lost(
    bench: Bench,
) -> None:
    bench.topic("t")
    tps = [TopicPartition("t", number) for number in range(100)]
    bench.zookeeper.faults = ["lost"]
    written = await write_states(bench.store.session, {tp: state(NO_NODE) for tp in tps})
    assert set(written.ok) == set(tps)


async def test_partition_state_is_written_if_its_parent_node_was_created_meanwhile(
    bench: Bench,
) -> None:
    bench.topic("t")
    tp = TopicPartition("t", 0)

    def overtake(ops: Any) -> None:
        bench.zookeeper.before_multi = lambda _: None
        bench.ensemble.put(layout.partitions_path("t"))

    bench.zookeeper.before_multi = overtake
    assert (await write_states(bench.store.session, {tp: state(NO_NODE)})).ok == {tp: 0}


@pytest.mark.parametrize("fault", ["unanswered", "lost", "unsent"])
@pytest.mark.parametrize("exists", [True, False])
async def test_partition_state_is_written_exactly_once_when_a_response_is_lost(
    bench: Bench, fault: str, exists: bool
) -> None:
    tps = bench.topic("t", 3) if exists else [TopicPartition("t", i) for i in range(3)]
    bench.topic("t")
    bench.zookeeper.faults = [fault]
    expected = 0 if exists else NO_NODE
    written = await write_states(
        bench.store.session, {tp: state(expected, leader=2, epoch=1) for tp in tps}
    )
    assert written.ok == dict.fromkeys(tps, expected + 1)
    assert bench.ensemble.nodes[layout.state_path(tps[0])].version == expected + 1


async def test_lost_state_write_is_a_conflict_when_the_node_was_changed_meanwhile(
    bench: Bench,
) -> None:
    (tp,) = bench.topic("t", 1)
    bench.zookeeper.faults = ["lost"]
    sync = bench.zookeeper.sync

    async def overtaken(path: str) -> None:
        bench.ensemble.put(layout.state_path(tp), layout.encode_state(state(0, leader=9)))
        await sync(path)

    bench.zookeeper.sync = overtaken  # type: ignore[method-assign]
    written = await write_states(bench.store.session, {tp: state(0, leader=2, epoch=1)})
    assert written.conflicts == (tp,)


@pytest.mark.row("R2")
async def test_store_refuses_writes_and_deletions_when_the_controller_epoch_has_changed(
    bench: Bench,
) -> None:
    (tp,) = bench.topic("t", 1)
    bench.ensemble.put(layout.CONTROLLER_EPOCH, b"2")
    with pytest.raises(ControllerMoved):
        await write_states(bench.store.session, {tp: state(0, leader=5)})
    with pytest.raises(ControllerMoved):
        await bench.store.session.delete_nodes([layout.state_path(tp)])
    assert bench.ensemble.nodes[layout.state_path(tp)].version == 0


async def test_store_refuses_writes_and_deletions_in_a_later_zookeeper_session(
    bench: Bench,
) -> None:
    (tp,) = bench.topic("t", 1)
    await bench.zookeeper.expire()
    await bench.zookeeper.attach()
    with pytest.raises(StaleSession):
        await write_states(bench.store.session, {tp: state(0, leader=5)})
    with pytest.raises(StaleSession):
        await bench.store.session.delete_nodes([layout.state_path(tp)])


async def test_multi_is_halved_until_it_is_small_enough(bench: Bench) -> None:
    tps = bench.topic("t", 10)
    multi = bench.zookeeper.multi

    async def small_only(ops: Any, *, generation: int | None = None) -> Any:
        if len(ops) > 4:
            raise TooLarge
        return await multi(ops, generation=generation)

    bench.zookeeper.multi = small_only  # type: ignore[method-assign]
    assert (
        len((await write_states(bench.store.session, {tp: state(0, epoch=1) for tp in tps})).ok)
        == 10
    )


async def test_delete_nodes_ignores_nodes_that_are_already_gone(bench: Bench) -> None:
    paths = [f"{layout.ISR_CHANGES}/isr_change_{i}" for i in range(450)]
    for path in paths[::2]:
        bench.ensemble.put(path)
    for gone in range(1, 450, 2):
        assert paths[gone] not in bench.ensemble.nodes
    await bench.store.session.delete_nodes(paths[:7])
    await bench.store.session.delete_nodes(paths[::2])
    assert bench.ensemble.children(layout.ISR_CHANGES) == []


@pytest.mark.row("A13", "R64")
@pytest.mark.parametrize(
    "parent",
    [layout.topic_config_path("t"), layout.delete_topic_path("t"), layout.topic_path("t")],
)
async def test_topic_deletion_deletes_unknown_nodes_below_its_nodes(
    bench: Bench, parent: str
) -> None:
    """ZooKeeper does not delete a node that has children, so the deletion would be retried forever."""
    bench.topic("t", 2)
    bench.ensemble.put(layout.topic_config_path("t"))
    bench.ensemble.put(layout.delete_topic_path("t"))
    bench.ensemble.put(f"{parent}/stranger")
    bench.ensemble.put(f"{parent}/stranger/below")
    async with asyncio.timeout(60):
        deleted = await bench.store.delete_topics(["t"])
    assert deleted == {}
    own = ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t")
    assert not [path for path in bench.ensemble.nodes if path.startswith(own)]


@pytest.mark.row("R64")
async def test_topic_created_after_a_deletion_with_a_lost_response_is_kept(
    bench: Bench,
) -> None:
    bench.topic("t", 2)
    bench.ensemble.put(layout.topic_config_path("t"))
    bench.ensemble.put(layout.delete_topic_path("t"))
    multi = bench.zookeeper.multi

    async def unanswered(ops: Any, *, generation: int | None = None) -> Any:
        stats = await multi(ops, generation=generation)
        if layout.topic_path("t") not in bench.ensemble.nodes:
            bench.zookeeper.multi = multi  # type: ignore[method-assign]
            bench.topic("t", 1)
            bench.ensemble.put(layout.topic_config_path("t"))
            raise OutcomeUnknown
        return stats

    bench.zookeeper.multi = unanswered  # type: ignore[method-assign]
    deleted = await bench.store.delete_topics(["t"])
    assert deleted == {}
    assert layout.state_path(TopicPartition("t", 0)) in bench.ensemble.nodes
    assert layout.topic_config_path("t") in bench.ensemble.nodes


@pytest.mark.row("R64")
async def test_topic_created_right_after_its_deletion_is_kept(bench: Bench) -> None:
    bench.topic("t", 1)
    multi = bench.zookeeper.multi

    async def overtaken(ops: Any, *, generation: int | None = None) -> Any:
        stats = await multi(ops, generation=generation)
        if layout.topic_path("t") not in bench.ensemble.nodes:
            bench.topic("t", 1)
        return stats

    bench.zookeeper.multi = overtaken  # type: ignore[method-assign]
    async with asyncio.timeout(60):
        await bench.store.delete_topics(["t"])
    assert layout.state_path(TopicPartition("t", 0)) in bench.ensemble.nodes


@pytest.mark.row("R64")
@pytest.mark.parametrize("fault", ["unanswered", "lost", "unsent"])
async def test_topic_deletion_is_completed_when_a_response_was_lost(
    bench: Bench, fault: str
) -> None:
    bench.topic("t")
    bench.ensemble.put(layout.topic_config_path("t"))
    bench.ensemble.put(layout.delete_topic_path("t"))
    bench.zookeeper.faults = [fault]
    await bench.store.delete_topics(["t"])
    own = ("/brokers/topics/t", "/config/topics/t", "/admin/delete_topics/t")
    assert not [path for path in bench.ensemble.nodes if path.startswith(own)]


@pytest.mark.row("A11", "A12")
async def test_admin_node_is_deleted_with_unknown_nodes_below_it(bench: Bench) -> None:
    bench.ensemble.put(layout.REASSIGN_PARTITIONS, b"{}")
    for path in (layout.REASSIGN_PARTITIONS, layout.PREFERRED_ELECTION):
        bench.ensemble.put(path, b"{}")
        bench.ensemble.put(f"{path}/stranger")
    async with asyncio.timeout(60):
        await bench.store.trim_reassignments({})
        await bench.store.session.delete_nodes([layout.PREFERRED_ELECTION])
    assert layout.REASSIGN_PARTITIONS not in bench.ensemble.nodes
    assert layout.PREFERRED_ELECTION not in bench.ensemble.nodes


@pytest.mark.row("A15", "H4", "M1")
async def test_unclean_election_setting_of_a_topic_overrides_that_of_the_broker(
    bench: Bench,
) -> None:
    bench.ensemble.put(
        layout.topic_config_path("u"),
        layout.encode_config(
            {"unclean.leader.election.enable": "true", "min.insync.replicas": "2"}
        ),
    )
    bench.ensemble.put(layout.topic_config_path("bad"), b"{")
    settings = await bench.store.read_election_settings(["t", "u", "bad"])
    assert settings == {"t": (False, 1), "u": (True, 2), "bad": (False, 1)}
    config = BrokerConfig.from_mapping(
        {"broker.id": 1, "unclean.leader.election.enable": True, "min.insync.replicas": 3}
    )
    store = ControllerStore(TermSession(bench.zookeeper, 1, 0), config)
    assert await store.read_election_settings(["t"]) == {"t": (True, 3)}


async def test_unreadable_partition_states_are_omitted(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = bench.topic("t", 2)
    bench.ensemble.put(layout.state_path(bad), b"{")
    assert await partition_states.read(
        bench.store.session, [good, bad, TopicPartition("t", 2)], bench.store.session.faults
    ) == {good: state(0)}
    assert f"{layout.state_path(bad)} is not readable and is skipped" in caplog.text


def noted(bench: Bench) -> list[dict[str, Any]]:
    return [dict(fields) for kind, _, fields in bench.ledger.lines if kind == "write"]


@pytest.mark.row("R2")
async def test_every_multi_has_a_ledger_line_with_its_check_and_outcome(bench: Bench) -> None:
    first, second = bench.topic("t", 2)
    bench.store.session.cause = "1-7"
    bench.ensemble.put(layout.state_path(second), b"moved on")
    await write_states(bench.store.session, {tp: state(0, epoch=1) for tp in (first, second)})
    refused, written = noted(bench)
    assert {cause for _, cause, _ in bench.ledger.lines} == {"1-7"}
    assert (refused["outcome"], refused["failed"], refused["zxid"]) == ("conflict", 1, None)
    assert (written["outcome"], written["check"]) == (
        "ok",
        {"path": "/controller_epoch", "version": 0},
    )
    node = bench.ensemble.nodes[layout.state_path(first)]
    (operation,) = written["operations"]
    assert (written["zxid"], operation["expected"], operation["actual"]) == (node.mzxid, 0, 1)
    assert operation["data"].encode() == node.data


@pytest.mark.parametrize("version", [0, NO_NODE])
async def test_multi_with_a_lost_response_has_a_second_ledger_line_after_its_read_back(
    bench: Bench, version: int
) -> None:
    (tp,) = bench.topic("t", 1) if version == 0 else (TopicPartition("t", 0),)
    bench.topic("t")
    bench.zookeeper.faults = ["unanswered"]
    await write_states(bench.store.session, {tp: state(version, epoch=1)})
    unknown, found = noted(bench)
    assert (unknown["outcome"], found["outcome"], found["read_back"]) == ("unknown", "ok", True)
    node = bench.ensemble.nodes[layout.state_path(tp)]
    (operation,) = found["operations"]
    assert (found["zxid"], operation["actual"]) == (node.mzxid, version + 1)
    assert operation["data"].encode() == node.data


async def test_ledger_line_of_a_former_controllers_multi_has_the_outcome_fenced(
    bench: Bench,
) -> None:
    (tp,) = bench.topic("t", 1)
    bench.ensemble.put(layout.CONTROLLER_EPOCH, b"2")
    with pytest.raises(ControllerMoved):
        await write_states(bench.store.session, {tp: state(0, epoch=1)})
    assert [line["outcome"] for line in noted(bench)] == ["fenced"]
