"""ACLs on whole brokers: when they take effect, what remembers them, and what is logged about them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
from support.security.secured import AUTHORIZER, DENY, User, grant, revoke, secured
from support.until import until

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ConfigError, ErrorCode
from minikafka.base.metrics import prometheus_text
from minikafka.base.model import TopicPartition
from minikafka.broker.broker import BrokerServer
from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.records.header import TRANSACTIONAL
from minikafka.kafka.wire.versions import (
    CREATE_ACLS,
    CREATE_TOPICS,
    DELETE_ACLS,
    DESCRIBE_ACLS,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
)
from minikafka.security.acls import (
    CLUSTER_NAME,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
    encode_entries,
)
from minikafka.simulation.cluster import MemoryCluster

pytestmark = pytest.mark.usefixtures("each_mode")

READ, WRITE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.ALL
CLUSTER = AclResourceType.CLUSTER
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
AUDIT = "kafka.authorizer.logger"
BATCH = build([Record(timestamp=1_700_000_000_000, value=b"v")])


@pytest.fixture
async def cluster() -> AsyncIterator[MemoryCluster]:
    async with asyncio.timeout(120), secured() as cluster:
        await create(cluster, "orders", "other")
        yield cluster


async def create(cluster: MemoryCluster, *topics: str) -> None:
    """Create topics, and wait until their leader serves clients."""
    async with cluster.client() as client:
        await client.create_topics(*(NewTopic(topic, 1, 1) for topic in topics))
    admin = await User(cluster, "ANONYMOUS").connect()
    rows = [{"partition_index": 0, "timestamp": -1}]
    asked = [{"name": topic, "partitions": rows} for topic in topics]
    async with asyncio.timeout(60):
        while True:
            answer = await admin.ask(LIST_OFFSETS, 1, replica_id=-1, topics=asked)
            if not any(part.error_code for row in answer.topics for part in row.partitions):
                return


async def produce(user: User, topic: str = "orders", batch: bytes = BATCH, **rest: Any) -> int:
    topics = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    values = {"transactional_id": None, "acks": 1, "timeout_ms": 5_000, **rest}
    answer = await user.ask(PRODUCE, 9, topic_data=topics, **values)
    return int(answer.responses[0].partition_responses[0].error_code)


async def fetch(user: User, topics: tuple[str, ...] = ("orders",), **rest: Any) -> Any:
    row = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    values = {"max_wait_ms": 0, "min_bytes": 0, "forgotten_topics_data": [], "rack_id": ""} | rest
    named = [{"topic": topic, "partitions": [row]} for topic in topics]
    return await user.ask(FETCH, 12, topics=named, **values)


def codes(answer: Any) -> list[int]:
    return [part.error_code for topic in answer.responses for part in topic.partitions]


async def test_same_produce_request_follows_each_change_of_the_acls(cluster: MemoryCluster) -> None:
    user = await User(cluster, "alice").connect()
    assert await produce(user) == DENIED
    await grant(cluster, "alice", WRITE, "orders")
    assert [await produce(user) for _ in range(4)] == [0] * 4
    await grant(cluster, "alice", WRITE, "*", permission=DENY)
    assert [await produce(user) for _ in range(2)] == [DENIED] * 2
    await revoke(cluster, "*")
    assert await produce(user) == 0


async def test_broker_knows_the_acls_before_it_listens() -> None:
    known: list[ResourcePattern] = []

    class Watched(MemoryCluster):
        def created(self, broker: BrokerServer) -> None:
            listener, authorizer = broker.listener, broker.access.authorizer
            start = listener.start
            assert authorizer is not None

            async def watched(*arguments: Any) -> Any:
                known.extend(authorizer.patterns())
                return await start(*arguments)

            listener.start = watched  # type: ignore[method-assign]

    pattern = ResourcePattern(AclResourceType.TOPIC, "orders", PatternType.LITERAL)
    entry = AclEntry("User:alice", "*", READ, AclPermission.ALLOW)
    cluster = Watched(1, authorizer_class_name=AUTHORIZER, super_users="User:ANONYMOUS")
    cluster.ensemble.put("/kafka-acl/Topic/orders", encode_entries([entry]))
    async with asyncio.timeout(60), cluster:
        assert known == [pattern]


async def test_change_through_one_broker_takes_effect_at_the_others() -> None:
    async with asyncio.timeout(120), secured(2) as cluster:
        await create(cluster, "orders")
        user = await User(cluster, "alice", broker=1).connect()
        asked = {"topics": [{"name": "orders"}]}
        assert (await user.ask(METADATA, 1, **asked)).topics[0].error_code == DENIED
        await grant(cluster, "alice", READ, "ord", pattern=PatternType.PREFIXED, broker=0)
        authorizer = cluster.brokers[1].access.authorizer
        assert authorizer is not None
        await until(authorizer.patterns)
        assert (await user.ask(METADATA, 1, **asked)).topics[0].error_code == 0
        await revoke(cluster, "ord", pattern=PatternType.PREFIXED, broker=0)
        await until(lambda: not authorizer.patterns())
        assert (await user.ask(METADATA, 1, **asked)).topics[0].error_code == DENIED


async def test_verdicts_on_a_connection_end_with_its_principal(cluster: MemoryCluster) -> None:
    user = await User(cluster, "alice").connect()
    await grant(cluster, "alice", ALL, "orders")
    assert [await produce(user) for _ in range(3)] == [0] * 3
    assert codes(await fetch(user)) == [0]
    user.connection.client.principal = "User:bob"
    assert await produce(user) == DENIED
    assert codes(await fetch(user)) == [DENIED]


async def test_produce_request_has_an_answer_for_each_topic(cluster: MemoryCluster) -> None:
    user = await User(cluster, "alice").connect()
    await grant(cluster, "alice", WRITE, "orders")
    parts = [{"index": 0, "records": BATCH}]
    topics = [{"name": name, "partition_data": parts} for name in ("other", "orders", "none")]
    answer = await user.ask(
        PRODUCE, 9, transactional_id=None, acks=-1, timeout_ms=5_000, topic_data=topics
    )
    found = {row.name: row.partition_responses[0].error_code for row in answer.responses}
    assert found == {"other": DENIED, "orders": 0, "none": DENIED}


async def test_right_to_a_transactional_id_is_asked_for_transactional_batches_alone(
    cluster: MemoryCluster,
) -> None:
    await grant(cluster, "alice", WRITE, "orders")
    user = await User(cluster, "alice").connect()
    batch = build(
        [Record(timestamp=1_700_000_000_000, value=b"v")],
        attributes=TRANSACTIONAL,
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
    )
    assert await produce(user, batch=batch, transactional_id="t", acks=-1) == NO_TRANSACTION
    assert await produce(user, transactional_id="t", acks=-1) == 0
    ids = AclResourceType.TRANSACTIONAL_ID
    await grant(cluster, "alice", WRITE, "t", resource=ids)
    allowed = await produce(user, batch=batch, transactional_id="t", acks=-1)
    assert allowed not in (0, NO_TRANSACTION), "the coordinator does not know the producer"


async def test_consumer_in_a_session_loses_a_topic_that_has_no_new_records(
    cluster: MemoryCluster,
) -> None:
    await grant(cluster, "alice", READ, "*")
    user = await User(cluster, "alice").connect()
    opened = await fetch(user, ("orders", "other"), session_epoch=0)
    assert codes(opened) == [0, 0]
    session = opened.session_id
    assert session
    again = await fetch(user, (), session_id=session, session_epoch=1)
    assert codes(again) == []
    await revoke(cluster, "*")
    await grant(cluster, "alice", READ, "other")
    after = await fetch(user, (), session_id=session, session_epoch=2)
    assert [(row.topic, *codes(after)) for row in after.responses] == [("orders", DENIED)]
    await grant(cluster, "alice", READ, "orders")
    restored = await fetch(user, (), session_id=session, session_epoch=3)
    assert codes(restored) == [0]


@pytest.mark.parametrize("in_session", [False, True])
async def test_fetch_that_waits_gets_no_records_after_the_right_is_lost(
    cluster: MemoryCluster, in_session: bool
) -> None:
    await grant(cluster, "alice", READ, "orders")
    user = await User(cluster, "alice").connect()
    session = {}
    if in_session:
        opened = await fetch(user, session_epoch=0)
        session = {"session_id": opened.session_id, "session_epoch": 1}
    waits = {"max_wait_ms": 60_000, "min_bytes": 1, **session}
    waiting = asyncio.create_task(fetch(user, () if in_session else ("orders",), **waits))
    await until(lambda: user.connection.fetch.consumers.waiting)
    await revoke(cluster, "orders")
    admin = await User(cluster, "ANONYMOUS").connect()
    assert await produce(admin) == 0
    answer = await waiting
    assert codes(answer) == [DENIED]
    assert not answer.responses[0].partitions[0].records


async def test_follower_that_loses_its_right_is_refused_in_its_session(
    cluster: MemoryCluster,
) -> None:
    await grant(cluster, "broker", AclOperation.CLUSTER_ACTION, CLUSTER_NAME, resource=CLUSTER)
    user = await User(cluster, "broker").connect()
    opened = await fetch(user, replica_id=7, session_epoch=0)
    session = opened.session_id
    assert session
    row = {"replica_id": 7, "session_id": session}
    assert DENIED not in codes(await fetch(user, session_epoch=1, **row))
    assert DENIED not in codes(await fetch(user, session_epoch=2, **row))
    await revoke(cluster, CLUSTER_NAME, resource=CLUSTER)
    refused = await fetch(user, session_epoch=3, **row)
    assert (codes(refused), refused.session_id) == ([DENIED], 0)


async def test_fetch_of_a_follower_that_waits_gets_no_records_after_the_right_is_lost() -> None:
    async with asyncio.timeout(120), secured(2) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("orders", 1, 2))
        await client.produce("orders", [Record(value=b"v")], partition=0)
        leader = cluster.brokers[0].metadata.topics["orders"][0].leader
        await cluster.stop(1 - leader)
        await grant(
            cluster,
            "broker",
            AclOperation.CLUSTER_ACTION,
            CLUSTER_NAME,
            resource=CLUSTER,
            broker=leader,
        )
        user = await User(cluster, "broker", broker=leader).connect()
        epoch = cluster.brokers[leader].metadata.topics["orders"][0].leader_epoch
        row = {"partition": 0, "current_leader_epoch": epoch, "partition_max_bytes": 1 << 20}
        values = {"replica_id": 1 - leader, "min_bytes": 1, "rack_id": ""}
        values |= {"forgotten_topics_data": []}
        named = [{"topic": "orders", "partitions": [{**row, "fetch_offset": 1}]}]
        opened = await user.ask(FETCH, 12, topics=named, max_wait_ms=0, session_epoch=0, **values)
        assert codes(opened) == [0]
        session = {"session_id": opened.session_id, "session_epoch": 1, "max_wait_ms": 60_000}
        waiting = asyncio.create_task(user.ask(FETCH, 12, topics=[], **session, **values))
        await until(lambda: user.connection.fetch.session.parked)
        await revoke(cluster, CLUSTER_NAME, resource=CLUSTER, broker=leader)
        admin = await User(cluster, "ANONYMOUS", broker=leader).connect()
        assert await produce(admin) == 0
        answer = await waiting
        assert codes(answer) == [DENIED]
        assert not answer.responses[0].partitions[0].records


async def test_right_to_read_topics_is_no_right_to_fetch_as_a_follower(
    cluster: MemoryCluster,
) -> None:
    await grant(cluster, "alice", ALL, "*")
    user = await User(cluster, "alice").connect()
    assert codes(await fetch(user, replica_id=7, session_epoch=0)) == [DENIED]
    assert codes(await fetch(user)) == [0]


async def test_followers_replicate_when_the_brokers_are_super_users() -> None:
    async with asyncio.timeout(120), secured(2) as cluster, cluster.client() as client:
        await client.create_topics(NewTopic("orders", 1, 2))
        await client.produce("orders", [Record(value=b"v")], partition=0)
        await cluster.until_all_are_in_sync()


async def test_follower_without_the_right_catches_up_when_it_gets_it() -> None:
    async with asyncio.timeout(120), secured(2, super_users="User:root") as cluster:
        admin = await User(cluster, "root").connect()
        topic = {"name": "orders", "num_partitions": 1, "replication_factor": 2}
        topic |= {"assignments": [], "configs": []}
        await until(lambda: len(cluster.brokers[0].metadata.brokers) == 2)
        for number in cluster.brokers:
            admin = await User(cluster, "root", broker=number).connect()
            made = await admin.ask(CREATE_TOPICS, 5, topics=[topic], timeout_ms=10_000)
            if made.topics[0].error_code != ErrorCode.NOT_CONTROLLER:
                break
        states = cluster.brokers[0].metadata.topics
        await until(lambda: "orders" in states and states["orders"][0].leader >= 0)
        leader = cluster.brokers[states["orders"][0].leader]
        admin = await User(cluster, "root", broker=leader.config.broker_id).connect()
        while code := await produce(admin):
            assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        (other,) = (one for one in cluster.brokers.values() if one is not leader)
        follower = other.replicas.partition(TopicPartition("orders", 0))
        assert follower is not None
        denied = leader.access._denied["OffsetForLeaderEpoch"]
        await until(lambda: denied.value > 1)
        assert follower.log.log_end_offset == 0
        await grant(
            cluster, "ANONYMOUS", AclOperation.CLUSTER_ACTION, CLUSTER_NAME, resource=CLUSTER
        )
        await until(lambda: follower.log.log_end_offset == 1)


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.1", 0), ("10.9.9.9", DENIED)])
async def test_acl_for_a_host_compares_the_address_of_the_connection(
    cluster: MemoryCluster, host: str, expected: int
) -> None:
    admin = await User(cluster, "ANONYMOUS").connect()
    acl = {"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3}
    acl |= {"principal": "User:alice", "host": host, "operation": 4, "permission_type": 3}
    assert (await admin.ask(CREATE_ACLS, 2, creations=[acl])).results[0].error_code == 0
    user = await User(cluster, "alice").connect()
    user.connection.client.peer = "127.0.0.1:50000"
    assert await produce(user) == expected


# ---- the requests for ACLs


def creation(name: str, **rest: Any) -> dict[str, Any]:
    row = {"resource_type": 2, "resource_name": name, "resource_pattern_type": 3, "host": "*"}
    return row | {"principal": "User:alice", "operation": 3, "permission_type": 3} | rest


def selection(**rest: Any) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(("resource_type_filter", "pattern_type_filter"), 1)
    row |= {"operation": 1, "permission_type": 1}
    row |= dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    return row | rest


async def described(user: User, **rest: Any) -> list[tuple[str, int, list[str]]]:
    answer = await user.ask(DESCRIBE_ACLS, 2, **selection(**rest))
    assert answer.error_code == 0
    return sorted(
        (row.resource_name, row.pattern_type, sorted(acl.principal for acl in row.acls))
        for row in answer.resources
    )


async def test_created_acls_are_described_and_deleted(cluster: MemoryCluster) -> None:
    admin = await User(cluster, "ANONYMOUS").connect()
    prefixed = {"resource_pattern_type": 4}
    acls = [creation("a"), creation("a", principal="User:bob"), creation("a", **prefixed)]
    created = await admin.ask(CREATE_ACLS, 2, creations=acls)
    assert [row.error_code for row in created.results] == [0, 0, 0]
    assert await described(admin) == [
        ("a", 3, ["User:alice", "User:bob"]),
        ("a", 4, ["User:alice"]),
    ]
    assert await described(admin, pattern_type_filter=4) == [("a", 4, ["User:alice"])]
    assert await described(admin, principal_filter="User:bob") == [("a", 3, ["User:bob"])]
    assert await described(admin, resource_name_filter="ab", pattern_type_filter=2) == [
        ("a", 4, ["User:alice"])
    ]
    filters = [selection(principal_filter="User:bob"), selection(resource_name_filter="a")]
    deleted = await admin.ask(DELETE_ACLS, 2, filters=filters)
    assert [
        (row.error_code, sorted((acl.principal, acl.pattern_type) for acl in row.matching_acls))
        for row in deleted.filter_results
    ] == [(0, [("User:bob", 3)]), (0, [("User:alice", 3), ("User:alice", 4)])]
    assert await described(admin) == []


async def test_deletion_leaves_the_other_acls_of_a_pattern(cluster: MemoryCluster) -> None:
    admin = await User(cluster, "ANONYMOUS").connect()
    acls = [creation("a"), creation("a", principal="User:bob")]
    await admin.ask(CREATE_ACLS, 2, creations=acls)
    await admin.ask(DELETE_ACLS, 2, filters=[selection(principal_filter="User:bob")])
    assert await described(admin) == [("a", 3, ["User:alice"])]


@pytest.mark.parametrize("name", ["cluster", "", "a/b"])
async def test_acl_with_an_invalid_name_of_a_resource_is_not_created(
    cluster: MemoryCluster, name: str
) -> None:
    admin = await User(cluster, "ANONYMOUS").connect()
    kind = 4 if name == "cluster" else 2
    created = await admin.ask(CREATE_ACLS, 2, creations=[creation(name, resource_type=kind)])
    assert created.results[0].error_code == ErrorCode.INVALID_REQUEST
    assert await described(admin) == []


async def test_version_0_concerns_literal_patterns_alone(cluster: MemoryCluster) -> None:
    admin = await User(cluster, "ANONYMOUS").connect()
    acls = [creation("a"), creation("a", resource_pattern_type=4)]
    await admin.ask(CREATE_ACLS, 1, creations=acls)
    every = {key: value for key, value in selection().items() if key != "pattern_type_filter"}
    answer = await admin.ask(DESCRIBE_ACLS, 0, **every)
    assert len(answer.resources) == 1
    await admin.ask(DELETE_ACLS, 0, filters=[every])
    assert await described(admin) == [("a", 4, ["User:alice"])]


@pytest.mark.parametrize("name", [".", "..", "a\0b", "a\ufffeb", "☃" * 200])
async def test_acl_whose_name_zookeeper_refuses_changes_nothing(
    cluster: MemoryCluster, name: str
) -> None:
    admin = await User(cluster, "ANONYMOUS").connect()
    acls = [creation(name, resource_type=5), creation("fine")]
    created = await admin.ask(CREATE_ACLS, 2, creations=acls)
    code, other = (row.error_code for row in created.results)
    assert other == 0
    shown = [row[0] for row in await described(admin)]
    assert shown == (["fine"] if code else ["fine", name])


@pytest.mark.parametrize(
    ("api", "values"),
    [
        (CREATE_ACLS, {"creations": [creation("a", operation=0)]}),
        (DESCRIBE_ACLS, selection(resource_type_filter=0)),
        (DELETE_ACLS, {"filters": [selection(permission_type=0)]}),
    ],
)
async def test_request_with_an_unknown_number_0_closes_the_connection_as_in_kafka(
    cluster: MemoryCluster, api: int, values: dict[str, Any]
) -> None:
    admin = await User(cluster, "ANONYMOUS").connect()
    with pytest.raises(AssertionError):
        await admin.ask(api, 2, **values)
    assert admin.peer.is_closed


# ---- the log and the metric


async def test_denied_request_is_logged_once_with_everything_about_it(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    user = await User(cluster, "mallory").connect()
    user.connection.client.peer = "10.0.0.7:50000"
    with caplog.at_level(logging.INFO, AUDIT):
        await fetch(user, ("orders", "orders"))
    assert [record.getMessage() for record in caplog.records if record.name == AUDIT] == [
        "Principal = User:mallory is Denied Operation = Read from host = 10.0.0.7 on resource = "
        "Topic:LITERAL:orders for request = Fetch with rule = no ACL allows it"
    ]


async def test_allowed_requests_are_logged_at_debug_whatever_the_broker_remembers(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    await grant(cluster, "alice", WRITE, "orders")
    user = await User(cluster, "alice").connect()
    for _ in range(3):
        await produce(user)
    assert [record for record in caplog.records if record.name == AUDIT] == []
    with caplog.at_level(logging.DEBUG, AUDIT):
        for _ in range(3):
            await produce(user)
    lines = [record.getMessage() for record in caplog.records if record.name == AUDIT]
    assert (
        lines
        == [
            "Principal = User:alice is Allowed Operation = Write from host = 127.0.0.1 on resource = "
            "Topic:LITERAL:orders for request = Produce with rule = "
            "ALLOW User:alice Write on Topic:LITERAL:orders from host *"
        ]
        * 3
    )


async def test_topics_that_a_list_leaves_out_are_not_logged(
    cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    user = await User(cluster, "mallory").connect()
    with caplog.at_level(logging.INFO, AUDIT):
        answer = await user.ask(METADATA, 1, topics=None)
    assert answer.topics == ()
    assert [record for record in caplog.records if record.name == AUDIT] == []


async def test_denied_requests_are_counted_by_request(cluster: MemoryCluster) -> None:
    user = await User(cluster, "mallory").connect()
    await produce(user)
    row = {"partition_index": 0, "timestamp": -1}
    topics = [{"name": name, "partitions": [row]} for name in ("orders", "other")]
    await user.ask(LIST_OFFSETS, 1, replica_id=-1, topics=topics)
    found = {
        line.split("request=")[1].split('"')[1]: float(line.split()[-1])
        for piece in prometheus_text(cluster.brokers[0].metrics)
        for line in piece.splitlines()
        if line.startswith("kafka_security_aclauthorizer_denied")
    }
    assert (found["Produce"], found["ListOffsets"], found["Fetch"]) == (1, 2, 0)


# ---- the keys


@pytest.mark.key("authorizer.class.name")
async def test_broker_without_an_authorizer_asks_nobody_and_creates_no_nodes() -> None:
    async with asyncio.timeout(60), MemoryCluster(1) as cluster:
        await create(cluster, "orders")
        user = await User(cluster, "mallory").connect()
        assert await produce(user) == 0
        assert "/kafka-acl" not in cluster.ensemble.nodes


@pytest.mark.key("authorizer.class.name")
def test_another_authorizer_is_refused_with_the_one_that_exists() -> None:
    name = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with pytest.raises(ConfigError, match=r"kafka\.security\.authorizer\.AclAuthorizer, got"):
        BrokerConfig.from_mapping({"broker.id": 1, "authorizer.class.name": name})


@pytest.mark.key("super.users")
async def test_super_users_may_do_everything() -> None:
    users = "User:ANONYMOUS;User:CN=a,O=b; User:root"
    async with asyncio.timeout(60), secured(super_users=users) as cluster:
        await create(cluster, "orders")
        await grant(cluster, "root", ALL, "*", permission=DENY)
        for name in ("root", "CN=a,O=b"):
            assert await produce(await User(cluster, name).connect()) == 0
        assert await produce(await User(cluster, "other").connect()) == DENIED


@pytest.mark.key("super.users")
@pytest.mark.parametrize("users", ["alice", "User:a;;User:b", "User:", ":a", "User:a,b;c"])
def test_malformed_super_users_are_refused(users: str) -> None:
    with pytest.raises(ConfigError, match=r"super\.users must be a list of TYPE:NAME"):
        BrokerConfig.from_mapping({"broker.id": 1, "super.users": users})


@pytest.mark.key("allow.everyone.if.no.acl.found")
@pytest.mark.parametrize(("allowed", "expected"), [(True, 0), (False, DENIED)])
async def test_topic_without_acls_is_open_if_the_key_says_so(allowed: bool, expected: int) -> None:
    async with (
        asyncio.timeout(60),
        secured(allow_everyone_if_no_acl_found=allowed) as cluster,
    ):
        await create(cluster, "orders")
        user = await User(cluster, "alice").connect()
        assert await produce(user) == expected
        await grant(cluster, "bob", WRITE, "orders")
        assert await produce(user) == DENIED


async def test_client_of_ours_gets_kafkas_error_with_its_meaning() -> None:
    async with asyncio.timeout(60), secured(super_users="User:root") as cluster:
        client: Client
        async with cluster.client() as client:
            with pytest.raises(Exception, match=r"no ACL lets the client|authorization"):
                await client.describe_topics("orders")
