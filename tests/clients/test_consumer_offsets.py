"""Compatibility of `__consumer_offsets` with Apache Kafka 3.9.

Kafka's formatters print minikafka's records, and minikafka reads Kafka's records.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer
from confluent_kafka import TopicPartition as Committed
from confluent_kafka.admin import AdminClient, NewTopic
from support.clusters.apache_kafka import apache_kafka, needs_kafka, run_java
from support.clusters.formatters import printed_by_kafka

from benchmarks.kafka import CLIENT_ID, LENGTH, Session
from minikafka.base.coordinators import KeyValue, LoadedRecord
from minikafka.base.model import TopicPartition
from minikafka.base.names import GROUP_TOPIC
from minikafka.broker.coordinators.loading import read_chunk
from minikafka.client import Client
from minikafka.client import NewTopic as NewOwnTopic
from minikafka.deciders.groups.context import LoadingGroups
from minikafka.deciders.groups.records import (
    GroupKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetAndMetadata,
    OffsetKey,
    UnknownKey,
    group_metadata_key,
    group_metadata_value,
    offset_commit_key,
    offset_commit_value,
    read_group,
    read_key,
    read_offset,
    subscribed_topics,
)
from minikafka.deciders.groups.states import STABLE
from minikafka.kafka.records.batch import records
from minikafka.tools.cluster import LocalCluster

pytestmark = [pytest.mark.clients, needs_kafka]

FORMATTERS: Final = (
    "kafka.coordinator.group.GroupMetadataManager$OffsetsMessageFormatter",
    "kafka.coordinator.group.GroupMetadataManager$GroupMetadataMessageFormatter",
    "org.apache.kafka.tools.consumer.OffsetsMessageFormatter",
    "org.apache.kafka.tools.consumer.GroupMetadataMessageFormatter",
)
T0: Final = TopicPartition("t", 0)
T1: Final = TopicPartition("t", 1)
SMALL: Final = {
    "group_initial_rebalance_delay_ms": 0,
    "offsets_topic_num_partitions": 1,
    "offsets_topic_replication_factor": 1,
    "transaction_state_log_num_partitions": 1,
    "transaction_state_log_replication_factor": 1,
    "transaction_state_log_min_isr": 1,
}


async def test_kafkas_formatters_print_our_consumer_offsets_records(tmp_path: Path) -> None:
    member = MemberMetadata("m-1", "one", "me", "/10.0.0.1", 300_000, 45_000, b"sub", b"assigned")
    group = GroupMetadataValue("consumer", 4, "range", "m-1", 77, (member,))
    empty = GroupMetadataValue("", 5, None, None, 78)
    written: list[KeyValue] = [
        (offset_commit_key("g", T0), offset_commit_value(OffsetAndMetadata(5, 3, "käse", 1_000))),
        (offset_commit_key("g", T0), offset_commit_value(OffsetAndMetadata(6, 3, "", 1_000, 2_000))),
        (offset_commit_key("g", T1), None),
        (group_metadata_key("g"), group_metadata_value(group)),
        (group_metadata_key("e"), group_metadata_value(empty)),
        (group_metadata_key("g"), None),
    ]  # fmt: skip

    lines = await printed_by_kafka(written, tmp_path, GROUP_TOPIC, *FORMATTERS)

    assert [line for line in lines if not line.startswith("{")] == [
        "[g,t,0]::OffsetAndMetadata(offset=5, leaderEpoch=Optional[3], metadata=käse, "
        "commitTimestamp=1000, expireTimestamp=None)",
        "[g,t,0]::OffsetAndMetadata(offset=6, leaderEpoch=Optional.empty, metadata=, "
        "commitTimestamp=1000, expireTimestamp=Some(2000))",
        "[g,t,1]::NULL",
        "g::GroupMetadata(groupId=g, generation=4, protocolType=Some(consumer), "
        "currentState=Stable, members=HashMap(m-1 -> MemberMetadata(memberId=m-1, "
        "groupInstanceId=Some(one), clientId=me, clientHost=/10.0.0.1, sessionTimeoutMs=45000, "
        "rebalanceTimeoutMs=300000, supportedProtocols=List(range))))",
        "e::GroupMetadata(groupId=e, generation=5, protocolType=None, currentState=Empty, "
        "members=HashMap())",
        "g::NULL",
    ]
    parsed = [json.loads(line) for line in lines if line.startswith("{")]
    assert [each["key"]["version"] for each in parsed] == [1, 1, 1, 2, 2, 2]
    assert [each["value"] and each["value"]["version"] for each in parsed] == [
        3,
        1,
        None,
        3,
        3,
        None,
    ]


def join(bootstrap: str, group: str, **settings: str) -> Consumer:
    """Join the group and return a consumer that has been assigned the partitions of topic t."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "client.id": "me",
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )
    assigned: list[Any] = []
    consumer.subscribe(["t"], on_assign=lambda _, partitions: assigned.append(partitions))
    while not assigned:
        consumer.poll(0.1)
    return consumer


def commit_with_retention(bootstrap: str, group: str, retention_ms: int) -> None:
    """Commit offset 11 of t-1 with OffsetCommit v2, which clients no longer send."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    topic = text("t") + struct.pack(">iiqh", 1, 1, 11, -1)
    body = text(group) + struct.pack(">i", -1) + text("") + struct.pack(">qi", retention_ms, 1)
    frame = struct.pack(">hhi", 8, 2, 1) + text(CLIENT_ID) + body + topic
    host, port = bootstrap.split(":")
    with Session(host, int(port)) as session:
        session.socket.sendall(LENGTH.pack(len(frame)) + frame)
        assert session.receive().endswith(bytes(2)), "an error code"


def commit_in_transactions(bootstrap: str) -> None:
    """Commit offsets of t-0 in a committed and an aborted transaction, and for group "open" in one that stays open."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "p"})
    producer.init_transactions()
    for offset in (3, 4, 8):
        producer.begin_transaction()
        group = "open" if offset == 8 else "transactional"
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        offsets = [Committed("t", 0, offset)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata())
        consumer.close()
        if offset == 3:
            producer.commit_transaction()
        elif offset == 4:
            producer.abort_transaction()


def use_groups(bootstrap: str) -> None:
    """Commit as a static member, as a dynamic member, without a member id, and in transactions; delete a group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 2, 1)])["t"].result()
    static = join(bootstrap, "static", group_instance_id="one")
    static.commit(
        offsets=[Committed("t", 0, 5, "käse"), Committed("t", 1, 7, leader_epoch=0)],
        asynchronous=False,
    )
    static.close()
    consumer = join(bootstrap, "gone")
    consumer.commit(offsets=[Committed("t", 0, 9)], asynchronous=False)
    consumer.close()
    admin.delete_consumer_groups(["gone"])["gone"].result()
    commit_with_retention(bootstrap, "simple", 60_000)
    commit_in_transactions(bootstrap)


def check_what_is_loaded(log: bytes) -> None:
    """Check that our coordinator loads the groups from Kafka's log, with a pending offset of the open transaction."""
    load = LoadingGroups(0, 0, count(1).__next__)
    for each in read_chunk(log, pytest.fail):
        if isinstance(each, LoadedRecord):
            load.add([each])
        else:
            load.transactions.end(*each)
    groups = {group.group_id: group for group in load.groups()}
    offsets = {
        name: {
            tp: found.offset
            for tp in group.offsets.partitions()
            if (found := group.offsets.fetch(tp))
        }
        for name, group in groups.items()
    }
    assert offsets == {
        "static": {T0: 5, T1: 7},
        "simple": {T1: 11},
        "transactional": {T0: 3},
        "open": {},
    }
    assert groups["open"].offsets.is_pending(T0)
    static = groups["static"]
    assert (static.state, static.generation, list(static.static_ids)) == (STABLE, 1, ["one"])


def rewritten(record: KeyValue) -> KeyValue:
    """Decode the record and return the record that minikafka encodes from the decoded values."""
    key, value = read_key(record[0]), record[1]
    assert not isinstance(key, UnknownKey)
    if isinstance(key, OffsetKey):
        again = None if value is None else offset_commit_value(read_offset(value))
        return offset_commit_key(*key), again
    return group_metadata_key(key.group), value and group_metadata_value(read_group(value))


async def test_kafkas_consumer_offsets_records_are_read_and_encoded_as_by_kafka(
    tmp_path: Path,
) -> None:
    async with apache_kafka(tmp_path, **SMALL) as kafka:
        await asyncio.to_thread(use_groups, kafka.bootstrap)
        [file] = (kafka.log_dir / "__consumer_offsets-0").glob("*.log")
        log = file.read_bytes()
    check_what_is_loaded(log)

    theirs = [(each.key or b"", each.value) for each in records(log)]
    assert [rewritten(record) for record in theirs] == theirs
    last = {read_key(key): value for key, value in theirs}
    offsets = {key: value and read_offset(value) for key, value in last.items() if key[1:]}
    committed = {key: value and value[:3] for key, value in offsets.items()}
    assert committed == {
        OffsetKey("static", T0): (5, -1, "käse\0"),  # librdkafka commits the NUL too
        OffsetKey("static", T1): (7, 0, ""),
        OffsetKey("gone", T0): None,
        OffsetKey("simple", T1): (11, -1, ""),
        OffsetKey("transactional", T0): (4, -1, ""),
        OffsetKey("open", T0): (8, -1, ""),
    }
    simple = offsets[OffsetKey("simple", T1)]
    assert simple is not None
    assert simple.expire_timestamp == simple.commit_timestamp + 60_000
    assert last[GroupKey("gone")] is None
    group = read_group(last[GroupKey("static")] or b"")
    [member] = group.members
    assert group[:4] == ("consumer", 1, "range", member.member_id)
    assert member[1:6] == ("one", "me", "/127.0.0.1", 300_000, 45_000)
    assert subscribed_topics(member.subscription) == {"t"}
    ours, expected = [
        await printed_by_kafka(written, tmp_path, GROUP_TOPIC, *FORMATTERS)
        for written in (map(rewritten, theirs), theirs)
    ]
    assert ours == expected


def open_offset(bootstrap: str, *, stable: bool) -> Any:
    """Return the committed offset of t-0 in the group "open", or the error for a reader of stable offsets."""
    asked = ConsumerGroupTopicPartitions("open", [Committed("t", 0)])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.list_consumer_group_offsets([asked], require_stable=stable, request_timeout=3)
    [partition] = found["open"].result().topic_partitions
    return partition.error or partition.offset


async def groups_of(bootstrap: str) -> dict[str, Any]:
    """Return state, members and committed offsets of every group; for the group "open" no offsets."""
    async with Client(bootstrap) as client:
        await client.groups.offsets("static")  # waits until the broker coordinates groups
        names = [group.group for group in await client.groups.list_groups()]
        described = await client.groups.describe(names)
        offsets = {
            name: await client.groups.offsets(name) if name != "open" else {} for name in names
        }
    return {
        name: (group.state, group.protocol_type, group.assignor, group.members, offsets[name])
        for name, group in described.items()
    }


async def test_broker_serves_kafkas_groups_from_a_copy_of_kafkas_logs(tmp_path: Path) -> None:
    """Kafka is killed while a static and a cooperative member are in their groups."""
    (tmp_path / "kafka").mkdir()
    async with apache_kafka(tmp_path / "kafka", **SMALL) as kafka:
        await asyncio.to_thread(use_groups, kafka.bootstrap)
        living = await asyncio.to_thread(
            join, kafka.bootstrap, "living", partition_assignment_strategy="cooperative-sticky"
        )
        living.commit(offsets=[Committed("t", 1, 2)], asynchronous=False)
        (await asyncio.to_thread(join, kafka.bootstrap, "empty")).close()
        before = await groups_of(kafka.bootstrap)
    living.close()
    assert sorted(before) == ["empty", "living", "open", "simple", "static", "transactional"]

    keys = {"offsets.topic.num.partitions": 1}
    async with LocalCluster(1, data=tmp_path / "own", config=keys) as cluster:
        async with Client(cluster.bootstrap) as client:
            await client.create_topics(NewOwnTopic("t", 2, 1))
            await client.groups.alter_offsets("first", {T0: 0})  # creates __consumer_offsets
        await cluster.kill(1)
        for name in ("t-0", "t-1", "__consumer_offsets-0"):
            own = cluster.directory.broker_data(1) / name
            identity = (own / "partition.metadata").read_bytes()
            shutil.rmtree(own)
            shutil.copytree(kafka.log_dir / name, own)
            (own / "partition.metadata").write_bytes(identity)
        await cluster.start()
        assert await groups_of(cluster.bootstrap) == before
        assert await asyncio.to_thread(open_offset, cluster.bootstrap, stable=False) == -1001
        unstable = await asyncio.to_thread(open_offset, cluster.bootstrap, stable=True)
        assert unstable.code() == KafkaError.UNSTABLE_OFFSET_COMMIT


async def test_kafkas_console_consumer_prints_our_consumer_offsets_topic(
    cluster: LocalCluster,
) -> None:
    def commit() -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 2, 3)])["t"].result()
        consumer = join(cluster.bootstrap, "printed", group_instance_id="one")
        consumer.commit(offsets=[Committed("t", 0, 5, "first")], asynchronous=False)
        consumer.close()

    await asyncio.to_thread(commit)
    formatters = "kafka.coordinator.group.GroupMetadataManager$"
    offsets, groups = [
        await run_java(
            "org.apache.kafka.tools.consumer.ConsoleConsumer",
            "--bootstrap-server", cluster.bootstrap, "--topic", "__consumer_offsets",
            "--from-beginning", "--timeout-ms", "5000", "--formatter", f"{formatters}{name}",
        )
        for name in ("OffsetsMessageFormatter", "GroupMetadataMessageFormatter")
    ]  # fmt: skip

    [committed] = [line for line in offsets.splitlines() if line.startswith("[printed,")]
    assert committed.startswith(
        "[printed,t,0]::OffsetAndMetadata(offset=5, leaderEpoch=Optional.empty, metadata=first"
    )
    [group] = [line for line in groups.splitlines() if line.startswith("printed::")]
    assert "generation=1, protocolType=Some(consumer), currentState=Stable" in group
    assert "groupInstanceId=Some(one), clientId=me, clientHost=/127.0.0.1" in group
