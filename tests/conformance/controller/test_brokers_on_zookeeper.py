"""Tests of the controller with whole brokers on Apache ZooKeeper.

The tests check znodes, the brokers' ledgers and disks, and the responses to clients.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.brokers.controller_bench import partitions_of
from support.clusters.zookeeper_brokers import NewCluster, Story, ZooKeeperBrokers, eventually
from support.zookeeper.servers import end_live_session

from minikafka.base.errors import ErrorCode
from minikafka.base.model import (
    ControllerResponse,
    LeaderAndIsr,
    StopReplicaRequest,
    TopicPartition,
)
from minikafka.base.ports import WatchKind
from minikafka.broker.ledger.reader import Line
from minikafka.client import NewTopic
from minikafka.client.administration.admin import Resource, ResourceType
from minikafka.kafka.records.batch import Record
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.processes.apache import ApacheZooKeeper

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def values(count: int) -> list[Record]:
    return [Record(value=b"v%d" % number) for number in range(count)]


async def produce(brokers: ZooKeeperBrokers, count: int, tp: TopicPartition = T0) -> None:
    async with brokers.client() as client:
        await client.produce(tp.topic, values(count), partition=tp.partition)


async def read(brokers: ZooKeeperBrokers, tp: TopicPartition = T0) -> list[bytes | None]:
    async with brokers.client() as client:
        return [
            record.value
            async for record in client.consume(tp.topic, start={tp.partition: 0}, until_end=True)
        ]


async def metadata_of(brokers: ZooKeeperBrokers) -> list[Any]:
    """Return the content of each broker's Metadata response."""
    answers = []
    for number in brokers.brokers:
        async with brokers.client_of(number) as client:
            info, topics = await client.admin.describe()
            answers.append((info.controller_id, sorted(info.brokers), topics))
    return answers


# ---- registration and election


@pytest.mark.row("A1", "X22")
async def test_broker_registration_has_the_address_and_ends_with_the_session(
    cluster: NewCluster,
) -> None:
    async with cluster(2) as brokers:
        path = layout.broker_path(2)
        data, stat = await brokers.observer.get(path)
        said = json.loads(data)
        assert (said["host"], said["port"], said["version"]) == ("127.0.0.1", brokers.ports[2], 5)
        assert stat.ephemeral_owner == brokers.session(2)[0] != 0
        await brokers.die(2)
        assert await brokers.node(path) is None


@pytest.mark.row("A7", "A8", "D1", "D3", "R1")
async def test_each_controller_election_is_one_multi_and_elects_one_controller(
    cluster: NewCluster,
) -> None:
    async with cluster() as brokers:
        for epoch in (1, 2, 3):
            await brokers.settled()
            first = brokers.controller.config.broker_id
            data, stat = await brokers.observer.get(layout.CONTROLLER)
            assert json.loads(data).keys() == {"version", "brokerid", "timestamp"}
            assert json.loads(data)["brokerid"] == first
            assert stat.ephemeral_owner == brokers.session(first)[0]
            data, stat = await brokers.observer.get(layout.CONTROLLER_EPOCH)
            assert (data, stat.ephemeral_owner) == (b"%d" % epoch, 0)
            story = Story(brokers.history())
            assert [(e["outcome"], e["epoch"]) for e in story.of("election")].count(
                ("won", epoch)
            ) == 1
            (won,) = [line for line in story.of("write") if line["cause"] == f"{epoch}-0"]
            assert [(op["op"], op["path"]) for op in won["operations"]] == [
                ("create", layout.CONTROLLER),
                ("check", layout.CONTROLLER_EPOCH),
                ("set", layout.CONTROLLER_EPOCH),
            ]
            if epoch == 1:
                assert len(story.of("election")) == 1, (
                    "brokers that find a controller write nothing"
                )
            if epoch < 3:
                await brokers.die(first)
        last = brokers.controller.config.broker_id
        await brokers.die(last)
        assert await brokers.node(layout.CONTROLLER) is None


@pytest.mark.row("D9", "E8", "D10")
async def test_deletion_of_the_controller_node_starts_a_new_election(
    cluster: NewCluster, server: ApacheZooKeeper
) -> None:
    async with cluster(4) as brokers:
        await brokers.create("t", {0: (1, 2)})
        old = brokers.controller
        old.gate.hold("creation.partitions-new")  # `old` cannot resign: another broker must win
        node = json.dumps({"version": 1, "partitions": {"0": [1, 2]}}).encode()
        await brokers.observer.create(layout.topic_path("u"), node)

        async def is_busy() -> bool:
            return bool(old.gate.waiting)

        async def has_resigned() -> bool:
            return not old.capabilities.diagnostics.is_active

        await eventually(is_busy, "the controller is held")
        await brokers.observer.delete(layout.CONTROLLER, -1)

        async def is_replaced() -> bool:
            epoch = await brokers.node(layout.CONTROLLER_EPOCH)
            return epoch is not None and epoch[0] == b"2"

        await eventually(is_replaced, "another election")
        old.gate.release("creation.partitions-new")
        await eventually(has_resigned, "the held controller resigns")
        await brokers.settled()
        outcomes = [
            (line["broker"], line["outcome"])
            for line in Story(brokers.history()).of("election")
            if line["epoch"] == 2
        ]
        assert [outcome for _, outcome in outcomes].count("won") == 1
        resigned = [
            line
            for line in Story(brokers.history()).of("election")
            if line["outcome"] == "resigned"
        ]
        assert [line["broker"] for line in resigned] == [old.config.broker_id]
        assert (await brokers.json(layout.CONTROLLER))[
            "brokerid"
        ] == brokers.controller.config.broker_id
        assert brokers.controller is not old


@pytest.mark.row("D8", "D10", "D11", "E8")
async def test_controller_that_resigns_drops_watches_channels_and_gauges(
    cluster: NewCluster, server: ApacheZooKeeper
) -> None:
    """The test writes a broker id that does not exist to `/controller`, so no other broker becomes the controller."""
    async with cluster(2) as brokers:
        await brokers.create("t", {0: (2, 1)})
        old = brokers.controller
        await brokers.die(2)
        await brokers.has_state(T0, 1, 1)
        await brokers.settled()
        assert old.describe()["metrics"]["PreferredReplicaImbalanceCount"] == 1
        term_watches = [layout.topic_path("t"), layout.broker_path(1)]
        watched = await brokers.watched(server)
        assert all(brokers.root + path in watched for path in term_watches)
        await brokers.observer.set(layout.CONTROLLER, layout.encode_controller(7, 0), -1)

        async def has_resigned() -> bool:
            return (
                not old.capabilities.diagnostics.is_active
                and not await brokers.data_watches_of_a_term(server)
            )

        await eventually(has_resigned, "the watches of the term are gone")
        before = len(brokers.history())
        await brokers.observer.create(layout.TOPICS + "/new", b"{}")
        await brokers.observer.create(layout.DELETE_TOPICS + "/t", b"")
        await brokers.observer.sync(layout.TOPICS)
        shown = old.describe()
        assert shown["controller"]["is_active"] is False
        assert shown["metrics"]["PreferredReplicaImbalanceCount"] == 0
        assert shown["metrics"]["ActiveControllerCount"] == 0
        assert shown["backlog"] == {}
        assert partitions_of(old.capabilities.diagnostics) == []
        later = brokers.history()[before:]
        assert [line for line in later if line["kind"] == "event"] == [], (
            "child watches are gone too"
        )


# ---- creation


@pytest.mark.row("A2", "A9", "A10", "B8", "E2", "I1", "I2", "J4", "T4", "X22", "N3")
async def test_topic_creation_sends_one_request_of_each_kind_to_each_broker_in_order(
    cluster: NewCluster, server: ApacheZooKeeper
) -> None:
    async with cluster() as brokers:
        before = Story(brokers.history())
        async with brokers.client() as client:
            await client.create_topics(NewTopic("t", 20, 3))
        await brokers.in_sync("t")
        await brokers.settled()
        story = Story(brokers.history()).since(before).because_of("TopicsChanged")
        lists = layout.decode_topic((await brokers.observer.get(layout.topic_path("t")))[0])[1]
        assert len(lists) == 20
        for number, assigned in lists.items():
            assert len(set(assigned.replicas)) == 3
            data, stat = await brokers.observer.get(layout.state_path(TopicPartition("t", number)))
            state = json.loads(data)
            assert state.keys() == {"leader", "isr", "leader_epoch", "controller_epoch", "version"}
            assert (state["leader"], stat.version) == (assigned.replicas[0], 0)
        for number in (0, 19):
            moves = story.about(TopicPartition("t", number)).moves()
            replicas = sorted(f"{replica} " for replica in (1, 2, 3))
            assert moves[0] == "partition NonExistent > New"
            assert sorted(moves[1:4]) == [f"{replica}NonExistent > New" for replica in replicas]
            assert moves[4] == "partition New > Online"
            assert sorted(moves[5:]) == [f"{replica}New > Online" for replica in replicas]
        kinds = [("LeaderAndIsr", 1), ("LeaderAndIsr", 2), ("LeaderAndIsr", 3)]
        assert sorted(story.requests()[:3]) == kinds
        assert sorted(story.requests()[3:]) == [("UpdateMetadata", number) for number in (1, 2, 3)]
        assert brokers.root + layout.topic_path("t") in await brokers.watched(server)


@pytest.mark.row("E2", "F3", "R69", "H9")
async def test_partition_of_a_topic_node_made_by_hand_gets_its_live_replicas_as_isr(
    cluster: NewCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster() as brokers:
        empty = json.dumps({"version": 1, "partitions": {"0": []}}).encode()
        await brokers.observer.create(layout.topic_path("empty"), empty)
        node = {"version": 1, "partitions": {"0": [9, 3, 2], "1": [9], "2": [1]}}
        await brokers.observer.create(layout.topic_path("t"), json.dumps(node).encode())
        state = await brokers.has_state(T0, 3, 2, 3)
        assert (state.leader_epoch, state.isr) == (0, (3, 2))
        await brokers.has_state(TopicPartition("t", 2), 1, 1)
        await brokers.settled()
        assert await brokers.state(T1) is None, "no replica of it is alive"
        story = Story(brokers.history()).because_of("TopicsChanged")
        created = [
            path for op, path in story.writes() if op == "create" and path.endswith("/state")
        ]
        assert sorted(created) == [layout.state_path(TopicPartition("t", n)) for n in (0, 2)]
        refused = [line for line in story.about(T1).of("decision") if line["verdict"] == "refuse"]
        assert refused
        assert f"{layout.topic_path('empty')} is not readable" in caplog.text
        assert "partition 0 has no replicas" in caplog.text
        assert await brokers.state(TopicPartition("empty", 0)) is None
        topic_id, _ = layout.decode_topic((await brokers.observer.get(layout.topic_path("t")))[0])
        assert topic_id is not None


@pytest.mark.row("C20", "C21", "A2")
async def test_topics_are_created_or_refused_one_by_one(cluster: NewCluster) -> None:
    async with cluster() as brokers, brokers.client() as client:
        # A broker that dies during the creation of a topic may leave settings, because it writes them first.
        left = layout.encode_config({"retention.ms": "7"})
        await brokers.observer.create(layout.topic_config_path("t"), left)
        outcomes = await client.admin.create_topics(
            [
                NewTopic("t", assignment={0: (2, 3)}, configs={"segment.ms": "9"}),
                NewTopic("auto", 3, 2),
                NewTopic("twice", assignment={0: (1, 1)}),
                NewTopic("absent", assignment={0: (1, 9)}),
                NewTopic("wide", 1, 4),
            ]
        )
        assert {name: outcome.code for name, outcome in outcomes.items()} == {
            "t": ErrorCode.NONE,
            "auto": ErrorCode.NONE,
            "twice": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "absent": ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "wide": ErrorCode.INVALID_REPLICATION_FACTOR,
        }
        again = await client.admin.create_topics([NewTopic("t", 9, 1)])
        assert again["t"].code is ErrorCode.TOPIC_ALREADY_EXISTS
        assert (await brokers.json(layout.topic_config_path("t")))["config"] == {"segment.ms": "9"}
        names, _ = await brokers.observer.children(layout.TOPICS)
        assert sorted(names) == ["auto", "t"]
        assert (await brokers.assignment(T0)).replicas == (2, 3)  # type: ignore[union-attr]


@pytest.mark.row("E3", "I9")
async def test_partitions_added_to_the_topic_node_are_created(cluster: NewCluster) -> None:
    async with cluster() as brokers:
        await brokers.create("t", {0: (1, 2)})
        data, stat = await brokers.observer.get(layout.topic_path("t"))
        node = json.loads(data)
        node["partitions"]["1"] = [3, 1]
        before = Story(brokers.history())
        await brokers.observer.set(layout.topic_path("t"), json.dumps(node).encode(), stat.version)
        await brokers.has_state(T1, 3, 3, 1)
        await brokers.settled()
        story = Story(brokers.history()).since(before).because_of("AssignmentChanged")
        assert story.about(T1).moves()[0] == "partition NonExistent > New"
        assert story.about(T0).moves() == []
        await produce(brokers, 3, T1)
        assert len(await read(brokers, T1)) == 3


# ---- failure and return of a broker


@pytest.mark.row("A10", "C19", "E1", "F4", "H1", "I3", "J1", "J3", "X4")
async def test_dead_leader_is_replaced_by_the_next_replica_in_sync(cluster: NewCluster) -> None:
    async with cluster() as brokers:
        await brokers.create("t", {0: (3, 2, 1), 1: (1, 2, 3)})
        await produce(brokers, 5)
        first, second = await brokers.state(T0), await brokers.state(T1)
        assert first is not None
        assert second is not None
        before = Story(brokers.history())
        await brokers.die(3)
        state = await brokers.has_state(T0, 2, 2, 1)
        follower = await brokers.has_state(T1, 1, 1, 2)
        await brokers.settled()
        assert state.leader_epoch == first.leader_epoch + 1
        assert state.state_version == first.state_version + 1
        assert follower.leader_epoch == second.leader_epoch + 1, "the removed follower is fenced"
        story = Story(brokers.history()).since(before).because_of("BrokersChanged")
        assert story.about(T0).moves() == [
            "partition Online > Offline",
            "partition Offline > Online",
            "3 Online > Offline",
        ]
        assert story.about(T1).moves() == ["3 Online > Offline"]
        assert story.about(T0).elections() == ["Offline"]
        written = [line for line in story.of("write") if line["outcome"] == "ok"]
        assert [
            (operation["expected"], operation["actual"])
            for operation in written[0]["operations"]
            if operation["path"] == layout.state_path(T0)
        ] == [(first.state_version, state.state_version)]
        kinds = [kind for kind, to in story.requests() if to == 2]
        assert kinds[:2] == ["LeaderAndIsr", "UpdateMetadata"]
        assert {to for kind, to in story.requests() if kind == "UpdateMetadata"} == {1, 2}
        assert (2, "leader") in story.became()
        answers = await metadata_of(brokers)
        assert answers[0] == answers[1]
        (topic,) = answers[0][2]
        assert topic.partitions[0].leader == 2
        assert topic.partitions[0].offline == (3,)
        assert len(await read(brokers)) == 5


@pytest.mark.row("R20", "X24", "J3")
async def test_death_of_a_broker_without_replicas_causes_only_update_metadata_requests(
    cluster: NewCluster,
) -> None:
    async with cluster() as brokers:
        await brokers.create("t", {0: (1, 2)})
        before = Story(brokers.history())
        await brokers.die(3)

        async def is_noticed() -> bool:
            return all(3 not in b.metadata.brokers for b in brokers.brokers.values())

        await eventually(is_noticed, "broker 3 left the metadata")
        story = Story(brokers.history()).since(before).because_of("BrokersChanged")
        assert sorted(story.requests()) == [("UpdateMetadata", 1), ("UpdateMetadata", 2)]
        assert story.writes() == []


@pytest.mark.row("A14", "E6", "G5", "I4", "R17", "R18", "R26", "X19", "X21")
async def test_returning_broker_gets_requests_and_is_added_to_the_isr_by_the_leader(
    cluster: NewCluster,
) -> None:
    async with cluster() as brokers:
        await brokers.create("t", {0: (1, 3)})
        await brokers.create("alone", {0: (3,)})
        await brokers.create("moving", {0: (1,)})
        alone, moving = TopicPartition("alone", 0), TopicPartition("moving", 0)
        await brokers.die(3)
        await brokers.has_state(T0, 1, 1)
        submitted = layout.encode_reassignments({moving: [3]})
        await brokers.observer.create(layout.REASSIGN_PARTITIONS, submitted)

        async def is_waiting() -> bool:
            assigned = await brokers.assignment(moving)
            return assigned is not None and assigned.adding == (3,)

        await eventually(is_waiting, "the reassignment waits for broker 3")
        await produce(brokers, 5)
        await brokers.settled()
        low = await brokers.state(T0)
        assert low is not None
        announced = brokers.observer.watch(WatchKind.CHILDREN, layout.ISR_CHANGES)
        await brokers.observer.children(layout.ISR_CHANGES, watch=True)
        before = Story(brokers.history())
        await brokers.start(3)
        state = await brokers.has_state(T0, 1, 1, 3)
        await announced.wait()

        async def is_handled() -> bool:
            return not (await brokers.observer.children(layout.ISR_CHANGES))[0]

        await brokers.gone(layout.REASSIGN_PARTITIONS)
        await eventually(is_handled, "the notification is deleted")
        await brokers.settled()
        moved = await brokers.assignment(moving)
        assert moved is not None
        assert moved.replicas == (3,), "its reassignment continued"
        later = Story(brokers.history()).since(before)
        story = later.because_of("BrokersChanged")
        kinds = [(kind, to) for kind, to in story.requests()]
        to_new = [kind for kind, to in kinds if to == 3]
        assert to_new[:2] == ["UpdateMetadata", "LeaderAndIsr"]
        first = {line["to"]: line for line in reversed(story.of("request"))}
        named = {topic for states in first[3]["states"] for topic in states["partitions"]}
        assert named == {"t", "alone", "moving"}
        assert (first[1]["states"], first[2]["states"]) == ([], [])
        assert story.about(T0).moves() == ["3 Offline > Online"]
        assert story.about(alone).moves() == ["3 Offline > Online", "partition Offline > Online"]
        await brokers.has_state(alone, 3, 3)
        (joined,) = [line for line in later.of("isr") if line["topic"] == "t"]
        assert (joined["broker"], joined["change"], joined["isr"]) == (1, "expand", [1, 3])
        assert (joined["expected"], joined["actual"]) == (low.state_version, low.state_version + 1)
        assert state.leader_epoch == low.leader_epoch, "the leader's own change raises no epoch"
        told = later.because_of("IsrChanged")
        assert {to for kind, to in told.requests() if kind == "UpdateMetadata"} == {1, 2, 3}
        names, _ = await brokers.observer.children(layout.ISR_CHANGES)
        assert names == []


# ---- elections on request


@pytest.mark.row("A12", "C29", "E5", "H6", "I7", "X26")
async def test_preferred_election_node_is_processed_and_deleted(cluster: NewCluster) -> None:
    async with cluster() as brokers:
        await brokers.create("t", {0: (3, 1), 1: (2, 1)})
        await brokers.die(3)
        await brokers.has_state(T0, 1, 1)
        await brokers.start(3)
        low = await brokers.has_state(T0, 1, 1, 3)
        await brokers.settled()
        before = Story(brokers.history())
        node = (
            b'{"version":1,"partitions":[{"topic":"t","partition":0},{"topic":"t","partition":1}]}'
        )
        await brokers.observer.create(layout.PREFERRED_ELECTION, node)
        await brokers.gone(layout.PREFERRED_ELECTION)
        state = await brokers.state(T0)
        assert state is not None
        assert (state.leader, set(state.isr), state.leader_epoch) == (
            3,
            {1, 3},
            low.leader_epoch + 1,
        )
        await brokers.settled()
        story = Story(brokers.history()).since(before)
        assert story.about(T0).moves() == ["partition Online > Online"]
        assert story.about(T0).elections() == ["PreferredReplica"]
        assert story.about(T1).moves() == [], "its preferred replica leads already"


@pytest.mark.row("R61", "C29", "X26", "X25")
async def test_elect_leaders_returns_an_outcome_per_partition_from_the_controller(
    cluster: NewCluster,
) -> None:
    async with cluster() as brokers:
        await brokers.create("t", {0: (3, 1), 1: (2, 1), 2: (3, 1)})
        await brokers.die(3)
        await brokers.has_state(T0, 1, 1)
        asked = [T0, T1, TopicPartition("t", 9)]
        async with brokers.client() as client:
            early = await client.admin.elect_leaders(asked)
            await brokers.start(3)
            await brokers.has_state(T0, 1, 1, 3)
            await brokers.settled()
            late = await client.admin.elect_leaders(asked)
        assert early[T0].code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        assert [late[tp].code for tp in asked] == [
            ErrorCode.NONE,
            ErrorCode.ELECTION_NOT_NEEDED,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]

        async def leads() -> bool:
            return brokers.brokers[3].replicas.partitions[T0].is_leader

        await eventually(leads, "broker 3 has its LeaderAndIsr request")


@pytest.mark.row("C29", "D7", "M2", "R62", "X20")
async def test_preferred_leader_takes_over_only_when_auto_leader_rebalance_is_enabled(
    cluster: NewCluster,
) -> None:
    keys = {"leader_imbalance_check_interval_seconds": 1}
    balanced = cluster(2, auto_leader_rebalance_enable=True, **keys)
    async with balanced as on, cluster(2, auto_leader_rebalance_enable=False, **keys) as off:
        for brokers in (on, off):
            await brokers.create("t", {0: (2, 1)})
            await brokers.die(2)
            await brokers.has_state(T0, 1, 1)
            await brokers.start(2)
        await off.has_state(T0, 1, 1, 2)
        await on.has_state(T0, 2, 1, 2)
        events = [line["event"] for line in Story(on.history()).of("event")]
        assert "RebalanceDue" in events
        await on.controller.clock.sleep(1_000)
        assert (await off.state(T0)).leader == 1  # type: ignore[union-attr]
        assert "RebalanceDue" not in [line["event"] for line in Story(off.history()).of("event")]


# ---- reassignment


REASSIGNMENT = ["U1", "U2", "A1", "A2", "B1", "B2", "B3", "B4", "B5", "B6", "B7", "B8"]


@pytest.mark.row("A9", "A11", "C30", "C31", "E4", "E10", "G10", "I5", "I6", "I10")
@pytest.mark.row("J2", "K4", "K15", "K16", "L5", "R56", "X11", "X14", "C15", "G3")
async def test_submitted_reassignment_moves_a_partition_to_other_brokers(
    cluster: NewCluster, server: ApacheZooKeeper
) -> None:
    async with cluster(4) as brokers:
        await brokers.create("t", {0: (1, 2)})
        await produce(brokers, 50)
        low = await brokers.state(T0)
        assert low is not None
        before = Story(brokers.history())
        gate = brokers.controller.gate
        held = brokers.brokers[4].gate
        held.hold("broker.leader_and_isr")
        gate.hold("reassignment.B1")
        submitted = layout.encode_reassignments({T0: [3, 4]})
        await brokers.observer.create(layout.REASSIGN_PARTITIONS, submitted)
        path = brokers.root + layout.state_path(T0)

        async def is_watched() -> bool:
            return bool(held.waiting) and path in await brokers.watched(server)

        await eventually(is_watched, "the state node is watched while a target does not start")
        node = await brokers.json(layout.topic_path("t"))
        assert node["partitions"] == {"0": [3, 4, 1, 2]}
        assert (node["adding_replicas"], node["removing_replicas"]) == (
            {"0": [3, 4]},
            {"0": [1, 2]},
        )
        held.release("broker.leader_and_isr")
        await brokers.has_state(T0, 1, 1, 2, 3, 4)
        assert await brokers.node(layout.REASSIGN_PARTITIONS) is not None
        gate.release("reassignment.B1")
        await brokers.gone(layout.REASSIGN_PARTITIONS)
        state = await brokers.has_state(T0, 3, 3, 4)
        assert state.leader_epoch > low.leader_epoch
        await brokers.settled()
        node = await brokers.json(layout.topic_path("t"))
        assert node["partitions"] == {"0": [3, 4]}
        assert (node["adding_replicas"], node["removing_replicas"]) == ({}, {})
        assert brokers.root + layout.state_path(T0) not in await brokers.watched(server)

        story = Story(brokers.history()).since(before)
        assert [s for s in story.steps() if s in REASSIGNMENT] == REASSIGNMENT
        assert story.about(T0).elections() == ["Reassign"]
        expansions = [line for line in story.of("isr") if line["change"] == "expand"]
        assert {line["broker"] for line in expansions} == {1}, "the leader extends the ISR"
        path, topic = layout.state_path(T0), layout.topic_path("t")
        writes = [p for _, p in story.writes()]
        last_topic, last_state = (len(writes) - 1 - writes[::-1].index(p) for p in (topic, path))
        assert last_state < last_topic < writes.index(layout.REASSIGN_PARTITIONS)
        moves = story.about(T0).moves()
        for replica in (1, 2):
            assert [move for move in moves if move.startswith(f"{replica} ")] == [
                f"{replica} Online > Offline",
                f"{replica} Offline > DeletionStarted",
                f"{replica} DeletionStarted > DeletionSuccessful",
                f"{replica} DeletionSuccessful > NonExistent",
            ]
            assert (replica, "deleted") in story.became()
        for replica in (3, 4):
            assert moves.index(f"{replica} NonExistent > New") < moves.index(
                f"{replica} New > Online"
            )
            roles = [became for broker, became in story.became() if broker == replica]
            assert roles[0] == "follower", "a new replica only follows"

        async def has_no_old_files() -> bool:
            return not brokers.directories(1, "t") and not brokers.directories(2, "t")

        await eventually(has_no_old_files, "the old replicas are deleted from the disks")
        assert len(await read(brokers)) == 50
        assert await replicas_in_metadata(brokers) == [(3, 4)] * 4


async def replicas_in_metadata(brokers: ZooKeeperBrokers) -> list[tuple[int, ...]]:
    """Return the replicas of t-0 in each broker's Metadata response."""
    return [topics[0].partitions[0].replicas for _, _, topics in await metadata_of(brokers)]


def stop_and_answer(story: Story, replica: int) -> tuple[Line, Line]:
    """Return the ledger lines of the request that deletes the replica, and of the broker's response."""
    asked = next(
        line
        for line in story.of("request")
        if (line["request"], line["to"]) == ("StopReplica", replica)
        and any(state["delete"] for state in line["states"])
    )
    answered = next(
        line
        for line in story.of("response")
        if (line["request"], line["from"]) == ("StopReplica", replica)
        and story.lines.index(line) > story.lines.index(asked)
    )
    return asked, answered


@pytest.mark.row("K14", "R58", "T5", "T6", "X13")
async def test_reassignment_keeps_a_leader_among_its_targets_and_raises_the_leader_epoch(
    cluster: NewCluster,
) -> None:
    async with cluster() as brokers:
        await brokers.create("t", {0: (1, 2)})
        low = await brokers.state(T0)
        assert low is not None
        before = Story(brokers.history())
        async with brokers.client() as client:
            assert await client.admin.reassign_partition("t", 0, [1, 3])
            state = await brokers.has_state(T0, 1, 1, 3)
            assert await client.admin.reassign_partition("t", 0, [3, 1])
        assert state.leader_epoch > low.leader_epoch
        assert Story(brokers.history()).since(before).about(T0).elections() == []
        assignment = await brokers.assignment(T0)
        assert assignment is not None
        assert assignment.replicas == (3, 1)


@pytest.mark.row("R57", "K17", "X12", "T19")
async def test_reassignment_to_a_dead_broker_is_refused_by_request_but_waits_by_znode(
    cluster: NewCluster,
) -> None:
    async with cluster() as brokers:
        await brokers.create("t", {0: (1,), 1: (2,)})
        await brokers.die(3)

        async def is_noticed() -> bool:
            return "3" not in brokers.controller.capabilities.diagnostics.summary()["brokers"]

        await eventually(is_noticed, "the controller knows that broker 3 is dead")
        async with brokers.client() as client:
            wrong = await client.admin.alter_reassignments(
                {T0: (3,), T1: None, TopicPartition("t", 9): (1,)}
            )
            assert [outcome.code for outcome in wrong.values()] == [
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            unknown = {T0: [3], TopicPartition("none", 0): [1]}
            submitted = layout.encode_reassignments(unknown)
            await brokers.observer.create(layout.REASSIGN_PARTITIONS, submitted)

            async def is_waiting() -> bool:
                return T0 in await client.admin.list_reassignments()

            await eventually(is_waiting, "the znode waits for the dead broker")
            low = await brokers.state(T0)
            (cancelled,) = (await client.admin.alter_reassignments({T0: None})).values()
            assert cancelled.ok
            await brokers.gone(layout.REASSIGN_PARTITIONS)
            assert await client.admin.list_reassignments() == {}
        state = await brokers.has_state(T0, 1, 1)
        assert low is not None
        assert state.leader_epoch > low.leader_epoch
        assert await brokers.node(layout.topic_path("none")) is None


# ---- deletion


@pytest.mark.row("A13", "A16", "C15", "E7", "G7", "G8", "G10", "J5", "L1", "R66", "X9")
async def test_deleted_topic_is_renamed_on_disks_before_its_zookeeper_nodes_are_deleted(
    cluster: NewCluster,
) -> None:
    async with cluster() as brokers:
        await brokers.create("t", {0: (1, 2), 1: (3, 1)})
        await produce(brokers, 5)
        before = Story(brokers.history())
        brokers.controller.gate.hold("deletion.topic-gone")
        await brokers.observer.create(layout.delete_topic_path("t"), b"")

        async def has_renamed() -> bool:
            names = [name for n in (1, 2, 3) for name in brokers.directories(n, "t")]
            return all(name.endswith("-delete") for name in names) and bool(
                brokers.controller.gate.waiting
            )

        await eventually(has_renamed, "every replica is renamed")
        assert await brokers.node(layout.topic_path("t")) is not None, "its nodes go last"
        brokers.controller.gate.release("deletion.topic-gone")
        await brokers.gone(layout.delete_topic_path("t"))
        assert await brokers.node(layout.topic_path("t")) is None
        assert await brokers.node(layout.topic_config_path("t")) is None
        story = Story(brokers.history()).since(before)
        moves = story.about(T0).moves()
        assert moves[:2] == ["partition Online > Offline", "partition Offline > NonExistent"]
        assert [move for move in moves if move.startswith("2 ")] == [
            "2 Online > Offline",
            "2 Offline > DeletionStarted",
            "2 DeletionStarted > DeletionSuccessful",
            "2 DeletionSuccessful > NonExistent",
        ]
        asked, answered = stop_and_answer(story, 2)
        deleted = next(
            line
            for line in story.about(T0).of("decision")
            if (line.get("replica"), line.get("to")) == (2, "ReplicaDeletionSuccessful")
        )
        order = [story.lines.index(line) for line in (asked, answered, deleted)]
        assert order == sorted(order), "the response decides the next state"
        mark = ("delete", layout.delete_topic_path("t"))
        assert story.writes()[-1] == mark

        async def is_clean() -> bool:
            return not any(brokers.directories(n, "t") for n in (1, 2, 3))

        await eventually(is_clean, "the renamed directories are removed")


@pytest.mark.row("L2", "L4", "R64", "X24")
async def test_topic_deletion_waits_for_a_dead_broker_and_ends_when_it_starts(
    cluster: NewCluster,
) -> None:
    async with cluster() as brokers:
        await brokers.create("t", {0: (1, 3)})
        await brokers.die(3)
        await brokers.has_state(T0, 1, 1)
        await brokers.settled()
        before = Story(brokers.history())
        await brokers.observer.create(layout.delete_topic_path("t"), b"")

        async def is_ineligible() -> bool:
            shown = brokers.controller.capabilities.diagnostics.summary()
            return "t" in shown["topics_ineligible_for_deletion"]

        await eventually(is_ineligible, "the topic waits for broker 3")
        await brokers.settled()
        story = Story(brokers.history()).since(before)
        assert "3 Offline > DeletionIneligible" in story.about(T0).moves()
        assert story.about(T0).elections() == []
        assert all("t" not in broker.metadata.topics for broker in brokers.brokers.values())
        assert await brokers.node(layout.topic_path("t")) is not None
        await brokers.start(3)
        await brokers.gone(layout.topic_path("t"))
        later = Story(brokers.history()).since(before)
        assert later.about(T0).elections() == [], "no leader for a topic being deleted"

        async def is_clean() -> bool:
            return not brokers.directories(3, "t")

        await eventually(is_clean, "its replica on broker 3 is deleted")


@pytest.mark.row("G9", "L2", "L3")
async def test_failed_deletion_of_a_replica_is_retried(
    cluster: NewCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster() as brokers:
        first = brokers.controller.config.broker_id
        failing, other = (n for n in (1, 2, 3) if n != first)
        await brokers.create("t", {0: (other, failing)})
        requests = brokers.brokers[failing].capabilities.roles
        handle = requests.handle

        async def refusing(request: Any) -> ControllerResponse:
            if isinstance(request, StopReplicaRequest) and any(
                p.delete for p in request.partitions
            ):
                code = ErrorCode.KAFKA_STORAGE_ERROR
                return ControllerResponse(0, tuple((p.tp, code) for p in request.partitions))
            return await handle(request)

        monkeypatch.setattr(requests, "handle", refusing)
        before = Story(brokers.history())
        await brokers.observer.create(layout.delete_topic_path("t"), b"")

        async def has_failed() -> bool:
            moves = Story(brokers.history()).since(before).about(T0).moves()
            return f"{failing} DeletionStarted > DeletionIneligible" in moves

        await eventually(has_failed, "the deletion has failed")
        assert await brokers.node(layout.topic_path("t")) is not None
        monkeypatch.undo()
        await brokers.die(other)
        await brokers.start(other)
        await brokers.gone(layout.topic_path("t"))
        moves = Story(brokers.history()).since(before).about(T0).moves()
        assert [move.partition(" ")[2] for move in moves if move.startswith(f"{failing} ")] == [
            "Online > Offline",
            "Offline > DeletionStarted",
            "DeletionStarted > DeletionIneligible",
            "DeletionIneligible > Offline",
            "Offline > DeletionStarted",
            "DeletionStarted > DeletionSuccessful",
            "DeletionSuccessful > NonExistent",
        ]


# ---- controlled shutdown


@pytest.mark.row("G6", "H7", "I8", "J2", "R21", "X6")
async def test_controlled_shutdown_moves_leaders_and_stops_followers(cluster: NewCluster) -> None:
    async with cluster() as brokers:
        going = next(
            n for n, b in brokers.brokers.items() if not b.capabilities.diagnostics.is_active
        )
        one, two = (n for n in (1, 2, 3) if n != going)
        await brokers.create("t", {0: (going, one, two), 1: (one, going, two)})
        await brokers.create("alone", {0: (going,)})
        await produce(brokers, 5)
        before = Story(brokers.history())
        await brokers.stop(going)
        story = Story(brokers.history()).since(before).because_of("ControlledShutdownRequested")
        await brokers.has_state(T0, one, one, two)
        await brokers.has_state(T1, one, one, two)
        alone = await brokers.state(TopicPartition("alone", 0))
        assert alone is not None
        assert alone.isr == (going,), "the last member stays"
        assert story.about(T0).elections() == ["ControlledShutdown"]
        (moved,) = [line for line in story.about(T0).of("decision") if line["verdict"] == "move"]
        assert (moved["leader"], set(moved["isr"])) == (one, {one, two})
        assert f"{going} Online > Offline" in story.about(T1).moves()
        stopped = [became for broker, became in story.became() if broker == going]
        # The broker may end before this request arrives.
        assert ("StopReplica", going) in story.requests()
        assert "deleted" not in stopped
        kinds = [kind for kind, to in story.requests() if to == one]
        first = kinds.index("LeaderAndIsr")
        assert kinds[first : first + 2] == ["LeaderAndIsr", "UpdateMetadata"]
        assert brokers.directories(going, "t") == ["t-0", "t-1"]
        assert len(await read(brokers)) == 5


# ---- failover of the controller


@pytest.mark.row("B5", "B6", "D5", "D6", "D16", "D17", "D18", "F7", "G11", "L6", "R18", "X7")
async def test_next_controller_holds_elections_and_resumes_deletion_and_reassignment(
    cluster: NewCluster,
) -> None:
    async with cluster(4) as brokers:
        first = brokers.controller.config.broker_id
        dead, one, two = (n for n in (1, 2, 3, 4) if n != first)
        await brokers.create("t", {0: (one, two, dead), 1: (first, one, two)})
        await brokers.create("gone", {0: (one, dead)})
        await brokers.create("moving", {0: (one,)})
        await brokers.die(dead)
        await brokers.has_state(T0, one, one, two)
        unborn = json.dumps({"version": 1, "partitions": {"0": [dead]}}).encode()
        await brokers.observer.create(layout.topic_path("unborn"), unborn)
        await brokers.observer.create(layout.delete_topic_path("gone"), b"")
        submitted = layout.encode_reassignments({TopicPartition("moving", 0): [dead]})
        await brokers.observer.create(layout.REASSIGN_PARTITIONS, submitted)

        async def are_waiting() -> bool:
            shown = brokers.controller.capabilities.diagnostics.summary()
            return bool(shown["topics_ineligible_for_deletion"] and shown["reassignments"])

        await eventually(are_waiting, "a deletion and a reassignment wait for the dead broker")
        await brokers.settled()
        before = Story(brokers.history())
        await brokers.die(first)
        await brokers.has_state(T1, one, one, two)
        await brokers.settled()
        elected = Story(brokers.history()).since(before).because_of("ControllerElected")
        await agrees_with_zookeeper(brokers, {one, two})
        to_one = [kind for kind, to in elected.requests() if to == one]
        assert to_one[:2] == ["UpdateMetadata", "LeaderAndIsr"]
        assert {(one, "t"), (two, "t"), (one, "moving")} <= roles_sent(elected)
        moves = elected.about(T0).moves()
        assert {f"{one} Online > Online", f"{two} Online > Online"} < set(moves), "informed again"
        assert f"{dead} DeletionIneligible > Offline" in moves
        assert not [move for move in moves if move.startswith("partition")], "it is Online already"
        assert "partition Offline > Online" in elected.about(T1).moves()
        told = elected.about(TopicPartition("unborn", 0)).of("decision")
        refused = [line for line in told if line["verdict"] == "refuse"]
        assert [
            (line["from"], line["to"]) for line in refused if line["machine"] == "partition"
        ] == [("NewPartition", "OnlinePartition")]
        await brokers.start(dead)
        await brokers.has_state(TopicPartition("unborn", 0), dead, dead)
        await brokers.gone(layout.topic_path("gone"))
        await brokers.gone(layout.REASSIGN_PARTITIONS)
        moved = await brokers.assignment(TopicPartition("moving", 0))
        assert moved is not None
        assert moved.replicas == (dead,)


def roles_sent(story: Story) -> set[tuple[int, str]]:
    """Return (broker, topic) for every partition state in the LeaderAndIsr requests."""
    return {
        (line["to"], topic)
        for line in story.of("request")
        if line["request"] == "LeaderAndIsr"
        for states in line["states"]
        for topic in states["partitions"]
    }


async def agrees_with_zookeeper(brokers: ZooKeeperBrokers, live: set[int]) -> None:
    """Check that the partitions and brokers that the controller reports agree with ZooKeeper."""
    shown = brokers.controller.capabilities.diagnostics.summary()
    partitions = partitions_of(brokers.controller.capabilities.diagnostics)
    assert set(shown["brokers"]) == set(map(str, live))
    assert shown["shutting_down"] == []
    assert shown["topics_marked_for_deletion"] == ["gone"]
    assert "gone" in shown["topics_ineligible_for_deletion"]
    assert [row["topic"] for row in shown["reassignments"]] == ["moving"]
    assert (shown["topic_count"], len(partitions)) == (4, 4), "one was never led"
    for row in partitions:
        state = await brokers.state(TopicPartition(row["topic"], row["partition"]))
        assert state is not None
        assert (row["leader"], tuple(row["isr"])) == (state.leader, state.isr)
        assert (row["leader_epoch"], row["zk_version"]) == (state.leader_epoch, state.state_version)
        assert row["controller_epoch"] == state.controller_epoch


@pytest.mark.row("E9", "R9", "R19", "T20")
async def test_expired_session_is_handled_as_broker_failure_and_broker_start(
    cluster: NewCluster,
) -> None:
    async with cluster() as brokers:
        controller = brokers.controller.config.broker_id
        other = next(n for n in (1, 2, 3) if n != controller)
        await brokers.create("t", {0: (controller, other)})
        before = Story(brokers.history())
        epoch = brokers.brokers[controller].info.epoch
        await end_live_session(brokers.server, *brokers.session(controller))

        async def is_back() -> bool:
            return brokers.brokers[controller].info.epoch > epoch

        await eventually(is_back, "the broker has registered again")
        await brokers.settled()
        await brokers.in_sync("t")
        story = Story(brokers.history()).since(before)
        outcomes = [(line["broker"], line["outcome"]) for line in story.of("election")]
        assert (controller, "resigned") in outcomes
        assert "won" in {outcome for _, outcome in outcomes}
        facts = [line["fact"] for line in story.of("broker") if line["broker"] == controller]
        assert facts[:2] == ["session lost", "registered"]
        await produce(brokers, 3)


# ---- conflicts


@pytest.mark.row("D12", "R4")
async def test_partition_state_of_a_higher_controller_epoch_is_not_overwritten(
    cluster: NewCluster,
) -> None:
    async with cluster() as brokers:
        await brokers.create("t", {0: (3, 2), 1: (3, 2)})
        state = await brokers.state(T0)
        assert state is not None
        newer = LeaderAndIsr(3, state.leader_epoch, state.isr, 99, 0)
        path = layout.state_path(T0)
        await brokers.observer.set(path, layout.encode_state(newer), -1)
        version = (await brokers.observer.get(path))[1].version
        await brokers.die(3)
        await brokers.has_state(T1, 2, 2)
        await brokers.settled()
        data, stat = await brokers.observer.get(path)
        assert (data, stat.version) == (layout.encode_state(newer), version)


@pytest.mark.row("D13", "R3", "T7", "X23")
async def test_election_is_repeated_only_for_the_partition_whose_state_write_conflicts(
    cluster: NewCluster,
) -> None:
    async with cluster() as brokers:
        await brokers.create("t", {0: (3, 2, 1), 1: (3, 2, 1)})
        state = await brokers.state(T0)
        assert state is not None
        shrunk = LeaderAndIsr(3, state.leader_epoch, (3, 1), state.controller_epoch, 0)
        stat = await brokers.observer.set(layout.state_path(T0), layout.encode_state(shrunk), -1)
        before = Story(brokers.history())
        await brokers.die(3)
        final = await brokers.has_state(T0, 1, 1, 2)
        await brokers.has_state(T1, 2, 2, 1)
        await brokers.settled()
        assert final.state_version > stat.version
        story = Story(brokers.history()).since(before).because_of("BrokersChanged")
        writes = [
            line["outcome"]
            for line in story.of("write")
            if any(op["path"] == layout.state_path(T0) for op in line["operations"])
        ]
        assert writes == ["conflict", "ok"]
        chosen = {
            tp: [
                (line["leader"], line["isr"])
                for line in story.about(tp).of("decision")
                if line["verdict"] == "choose"
            ]
            for tp in (T0, T1)
        }
        assert chosen == {T0: [(2, [2, 1]), (1, [1])], T1: [(2, [2, 1])]}


# ---- settings of elections


@pytest.mark.row("A15", "D11", "H2", "H3", "H4", "M1", "R63", "T3", "X3")
async def test_partition_without_live_isr_has_no_leader_until_unclean_election_is_enabled(
    cluster: NewCluster,
) -> None:
    async with cluster() as brokers:
        first = brokers.controller.config.broker_id
        last, other = (n for n in (1, 2, 3) if n != first)
        await brokers.create("t", {0: (last, other)})
        await brokers.create("u", {0: (last, other)})
        other_topic = TopicPartition("u", 0)
        await brokers.die(other)
        for tp in (T0, other_topic):
            await brokers.has_state(tp, last, last)
        await brokers.die(last)
        for tp in (T0, other_topic):
            state = await brokers.has_state(tp, -1, last)
            assert state.isr == (last,), "the ISR keeps its last member"
        before = Story(brokers.history())
        await brokers.start(other)
        await brokers.settled()
        assert (await brokers.state(T0)).leader == -1  # type: ignore[union-attr]
        metrics = brokers.controller.describe()["metrics"]
        assert metrics["OfflinePartitionsCount"] == 2
        assert brokers.brokers[other].describe()["metrics"]["OfflinePartitionsCount"] == 0
        async with brokers.client() as client:
            shown = (await client.admin.describe_topics(["t"]))["t"].partitions[0]
            assert (shown.leader, shown.error) == (-1, ErrorCode.LEADER_NOT_AVAILABLE)
            topic = Resource(ResourceType.TOPIC, "t")
            change = {topic: {"unclean.leader.election.enable": "true"}}
            (outcome,) = (await client.admin.alter_configs(change)).values()
            assert outcome.ok
            await brokers.has_state(T0, other, other)
            await brokers.settled()
            assert (await brokers.state(other_topic)).leader == -1, "its own topic decides"  # type: ignore[union-attr]
            assert brokers.controller.capabilities.diagnostics.summary()["unclean_elections"] == 1
            await client.produce("t", values(1), partition=0)
        moves = Story(brokers.history()).since(before).about(T0).moves()
        assert "partition Offline > Online" in moves
