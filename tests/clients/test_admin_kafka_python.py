"""kafka-python's and aiokafka's admin clients against a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from kafka import KafkaConsumer, KafkaProducer, TopicPartition, TopicPartitionReplica
from kafka import errors as kafka_errors
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from support.clusters.running_cluster import BROKERS, eventually, known_everywhere

from minikafka.base.errors import ErrorCode
from minikafka.tools.cluster import LocalCluster

# kafka-python leaves the sockets of lost connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def admin(cluster: LocalCluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield client
    client.close()


async def create(
    cluster: LocalCluster, admin: KafkaAdminClient, name: str, assignment: list[list[int]]
) -> None:
    by_hand = dict(enumerate(assignment))
    numbers = {"num_partitions": -1, "replication_factor": -1}
    admin.create_topics({name: {**numbers, "assignments": by_hand}})
    await known_everywhere(cluster, name)


@pytest.mark.row("R57")
async def test_reassignment_request_is_answered_with_a_result_for_each_partition(
    cluster: LocalCluster, admin: KafkaAdminClient
) -> None:
    await create(cluster, admin, "python-move", [[1, 2], [2, 3]])
    first, second, absent = (TopicPartition("python-move", number) for number in (0, 1, 7))
    answers = admin.alter_partition_reassignments({first: [3, 1], second: None, absent: [1]})
    assert answers == {
        first: None,
        second: kafka_errors.NoReassignmentInProgressError,
        absent: kafka_errors.UnknownTopicOrPartitionError,
    }
    await eventually(lambda: _nothing_moves(admin))
    assert await cluster.leader_of("python-move", 0) in (1, 3)
    await eventually(lambda: _replicas_are(admin, "python-move", {0: [3, 1], 1: [2, 3]}))


@pytest.mark.row("R57")
@pytest.mark.parametrize("target", [[1, 1], [1, -2], [1, 9]])
async def test_reassignment_to_an_invalid_replica_list_is_rejected(
    cluster: LocalCluster, admin: KafkaAdminClient, target: list[int]
) -> None:
    if "python-wrong" not in admin.list_topics():
        await create(cluster, admin, "python-wrong", [[1, 2]])
    partition = TopicPartition("python-wrong", 0)
    assert admin.alter_partition_reassignments({partition: target}) == {
        partition: kafka_errors.InvalidReplicationAssignmentError
    }


@pytest.mark.usefixtures("with_controller")
@pytest.mark.row("X12", "R57")
async def test_pending_reassignment_is_listed_replaced_and_cancelled(
    cluster: LocalCluster, admin: KafkaAdminClient
) -> None:
    await create(cluster, admin, "python-wait", [[1, 2]])
    partition = TopicPartition("python-wait", 0)
    await cluster.hold("broker.leader_and_isr", [3])
    try:
        assert admin.alter_partition_reassignments({partition: [1, 3]}) == {partition: None}
        listed = admin.list_partition_reassignments([partition])
        assert listed == {
            partition: {"replicas": [1, 3, 2], "adding_replicas": [3], "removing_replicas": [2]}
        }
        assert admin.alter_partition_reassignments({partition: [3]}) == {partition: None}
        assert admin.list_partition_reassignments()[partition]["removing_replicas"] == [1, 2]
        with pytest.raises(kafka_errors.ReassignmentInProgressError):
            admin.create_partitions({"python-wait": 2})
        assert admin.alter_partition_reassignments({partition: None}) == {partition: None}
    finally:
        await cluster.release("broker.leader_and_isr", [3])
    await eventually(lambda: _nothing_moves(admin))
    await eventually(lambda: _replicas_are(admin, "python-wait", {0: [1, 2]}))


async def test_records_are_deleted_from_the_start_of_partitions(
    cluster: LocalCluster, admin: KafkaAdminClient
) -> None:
    await create(cluster, admin, "python-cut", [[1, 2, 3], [2, 3, 1]])
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
    for number in range(20):
        producer.send("python-cut", b"%d" % number, partition=number % 2).get(30)
    producer.close()
    first, second = (TopicPartition("python-cut", number) for number in (0, 1))
    answers = admin.delete_records({first: 4, second: -1})
    assert {tp: answer["low_watermark"] for tp, answer in answers.items()} == {
        first: 4,
        second: 10,
    }
    consumer = KafkaConsumer(
        bootstrap_servers=cluster.bootstrap,
        consumer_timeout_ms=60_000,
        metadata_max_age_ms=1_000,  # otherwise kafka-python asks a former leader until its timeout of 30 s
    )
    assert consumer.beginning_offsets([first, second]) == {first: 4, second: 10}
    consumer.assign([first])
    consumer.seek_to_beginning(first)
    assert next(consumer).value == b"8"
    consumer.close()
    with pytest.raises(kafka_errors.KafkaError, match="OffsetOutOfRange"):
        admin.delete_records({first: 11})


async def _nothing_moves(admin: KafkaAdminClient) -> bool:
    return not admin.list_partition_reassignments()


async def _replicas_are(
    admin: KafkaAdminClient, topic: str, replicas: dict[int, list[int]]
) -> bool:
    (found,) = admin.describe_topics([topic])
    return replicas == {
        row["partition_index"]: list(row["replica_nodes"]) for row in found["partitions"]
    }


@pytest.mark.usefixtures("with_controller")
async def test_log_level_of_a_broker_decides_what_its_log_contains(
    cluster: LocalCluster, admin: KafkaAdminClient
) -> None:
    controller = str((await cluster.state()).controller)
    log = cluster.directory.logs / f"broker-{controller}.log"

    def logged(topic: str) -> bool:
        return any(" DEBUG " in line and topic in line for line in log.read_text().splitlines())

    def alter(level: str | tuple[str, None]) -> None:
        levels = {"state-change": level}
        resource = ConfigResource(ConfigResourceType.BROKER_LOGGER, controller, levels)
        assert admin.alter_configs([resource]) == {"broker_logger": {controller: "OK"}}

    def shown() -> str:
        resource = ConfigResource(ConfigResourceType.BROKER_LOGGER, controller)
        levels = admin.describe_configs([resource])["broker_logger"][controller]
        return str(levels["state-change"]["value"])

    alter("DEBUG")
    assert shown() == "DEBUG"
    await create(cluster, admin, "python-logged-debug", [[1]])
    assert logged("python-logged-debug-0")
    alter(("DELETE", None))
    assert shown() == "INFO"
    await create(cluster, admin, "python-logged-info", [[1]])
    assert not logged("python-logged-info-0")


@pytest.mark.row("R71")
async def test_topic_settings_are_altered_by_incremental_and_full_alter_requests(
    cluster: LocalCluster,
    admin: KafkaAdminClient,
) -> None:
    await create(cluster, admin, "python-configs", [[1, 2, 3]])

    def alter(incremental: bool, **values: Any) -> Any:
        configs = {name.replace("_", "."): value for name, value in values.items()}
        resource = ConfigResource(ConfigResourceType.TOPIC, "python-configs", configs)
        return admin.alter_configs([resource], incremental=incremental)

    def shown() -> dict[str, Any]:
        resource = ConfigResource(ConfigResourceType.TOPIC, "python-configs")
        configs = admin.describe_configs([resource])["topic"]["python-configs"]
        return {
            name: entry["value"]
            for name, entry in configs.items()
            if entry["config_source"] == "DYNAMIC_TOPIC_CONFIG"
        }

    assert alter(True, retention_ms="5", cleanup_policy=("APPEND", "compact")) == {
        "topic": {"python-configs": "OK"}
    }
    assert shown() == {"retention.ms": "5", "cleanup.policy": "delete,compact"}
    alter(True, cleanup_policy=("SUBTRACT", "delete"))
    assert shown() == {"retention.ms": "5", "cleanup.policy": "compact"}
    alter(False, retention_ms="7")
    assert shown()["retention.ms"] == "7"
    admin.reset_configs(
        [ConfigResource(ConfigResourceType.TOPIC, "python-configs", ["retention.ms"])]
    )
    assert "retention.ms" not in shown()


async def test_log_directories_show_every_replica(
    cluster: LocalCluster, admin: KafkaAdminClient
) -> None:
    await create(cluster, admin, "python-dirs", [[1, 2, 3]])
    found = admin.describe_log_dirs({"python-dirs": [0]})
    assert {broker["broker"] for broker in found} == set(BROKERS)
    for broker in found:
        (directory,) = broker["log_dirs"]
        assert directory["error_code"] == 0
        assert 0 < directory["usable_bytes"] <= directory["total_bytes"]
        (row,) = directory["topics"][0]["partitions"]
        assert (row["partition_size"], row["offset_lag"]) == (0, 0)
    replica = TopicPartitionReplica("python-dirs", 0, 2)
    moved = admin.alter_replica_log_dirs({replica: "/nowhere"})
    assert moved == {replica: kafka_errors.LogDirNotFoundError}


async def test_producers_of_a_partition_are_described(
    cluster: LocalCluster, admin: KafkaAdminClient
) -> None:
    await create(cluster, admin, "python-producers", [[1, 2, 3]])
    with KafkaProducer(bootstrap_servers=cluster.bootstrap) as producer:
        for _ in range(3):
            producer.send("python-producers", b"x").get(60)
    partition = TopicPartition("python-producers", 0)
    (state,) = admin.describe_producers([partition])[partition].active_producers
    assert state.last_sequence == 2


async def test_acl_requests_report_that_security_is_disabled(admin: KafkaAdminClient) -> None:
    every = ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY)
    with pytest.raises(kafka_errors.SecurityDisabledError):
        admin.describe_acls(ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, every))
    topic = ResourcePattern(ResourceType.TOPIC, "t")
    acl = ACL("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, topic)
    created = admin.create_acls([acl])
    assert created["succeeded"] == []
    assert kafka_errors.SecurityDisabledError in created["failed"]
    ((_, _, deleted),) = admin.delete_acls([acl])
    assert deleted is kafka_errors.SecurityDisabledError


async def _is_gone(cluster: LocalCluster, topic: str) -> bool:
    return topic not in {tp.topic for tp in (await cluster.state()).partitions}


async def test_aiokafka_creates_extends_configures_and_deletes_a_topic(
    cluster: LocalCluster,
) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([AioNewTopic("aio-admin", 1, 2)])
        await known_everywhere(cluster, "aio-admin")
        extended = await admin.create_partitions({"aio-admin": AioNewPartitions(3)})
        assert [error for _, error, _ in extended.topic_errors] == [0]
        topic = AioConfigResource(AioConfigResourceType.TOPIC, "aio-admin", {"retention.ms": "5"})
        (altered,) = await admin.alter_configs([topic])
        assert [row[0] for row in altered.resources] == [0]
        broker = AioConfigResource(AioConfigResourceType.BROKER, "2")
        wanted = AioConfigResource(AioConfigResourceType.TOPIC, "aio-admin")
        described = await admin.describe_configs([wanted, broker])
        codes = [row[0] for answer in described for row in answer.resources]
        assert codes == [0, 0]
        deleted = await admin.delete_topics(["aio-admin", "aio-none"])
        assert dict(deleted.topic_error_codes) == {
            "aio-admin": 0,
            "aio-none": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        await eventually(lambda: _is_gone(cluster, "aio-admin"))
    finally:
        await admin.close()
