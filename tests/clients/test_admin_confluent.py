"""confluent-kafka's AdminClient against a cluster: successful operations, and Kafka's error code for rejected ones."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
)
from support.clusters.running_cluster import eventually, kill, known_everywhere

from minikafka.base.errors import ErrorCode
from minikafka.tools.cluster import LocalCluster

TOPIC, BROKER = ConfigResource.Type.TOPIC, ConfigResource.Type.BROKER
UNCLEAN = "unclean.leader.election.enable"


def outcomes(futures: dict[Any, Future[Any]]) -> dict[Any, int]:
    """Return the error code of each item, 0 on success."""
    codes = {}
    for item, future in futures.items():
        try:
            future.result(60)
            codes[item] = 0
        except KafkaException as error:
            codes[item] = error.args[0].code()
    return codes


def message(future: Future[Any]) -> str:
    with pytest.raises(KafkaException) as caught:
        future.result(60)
    return str(caught.value.args[0].str())


@pytest.fixture
def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap})


async def create(
    cluster: LocalCluster, admin: AdminClient, name: str, assignment: list[list[int]], **config: str
) -> None:
    topic = NewTopic(name, len(assignment), replica_assignment=assignment, config=config)
    assert outcomes(admin.create_topics([topic])) == {name: 0}
    await known_everywhere(cluster, name)


def leaders(admin: AdminClient, topic: str) -> dict[int, int]:
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions
    return {number: partition.leader for number, partition in partitions.items()}


def shown(admin: AdminClient, kind: Any, name: str) -> dict[str, ConfigEntry]:
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    entries: dict[str, ConfigEntry] = future.result(60)
    return entries


def change(
    admin: AdminClient, kind: Any, name: str, operation: AlterConfigOpType, **values: str | None
) -> Future[Any]:
    entries = [
        ConfigEntry(key.replace("_", "."), value, incremental_operation=operation)
        for key, value in values.items()
    ]
    resource = ConfigResource(kind, name, incremental_configs=entries)
    (future,) = admin.incremental_alter_configs([resource]).values()
    return future


@pytest.mark.row("I9")
async def test_create_partitions_adds_partitions_with_and_without_replica_lists(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    await create(cluster, admin, "confluent-more", [[1, 2], [2, 3]])
    assert outcomes(admin.create_partitions([NewPartitions("confluent-more", 3)])) == {
        "confluent-more": 0
    }
    by_hand = NewPartitions("confluent-more", 5, [[3, 1], [1, 3]])
    assert outcomes(admin.create_partitions([by_hand])) == {"confluent-more": 0}
    await eventually(lambda: _is_led(admin, "confluent-more", {3: 3, 4: 1}))


async def _is_led(admin: AdminClient, topic: str, by: dict[int, int]) -> bool:
    return by.items() <= leaders(admin, topic).items()


@pytest.mark.parametrize(
    ("asked", "code", "words"),
    [
        (("confluent-few", 1), ErrorCode.INVALID_PARTITIONS, "currently has 2 partitions"),
        (("confluent-few", 2), ErrorCode.INVALID_PARTITIONS, "already has 2 partitions"),
        (("confluent-none", 2), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "does not exist"),
        (
            ("confluent-few", 3, [[1, 9]]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "Unknown broker(s) in replica assignment: 9",
        ),
    ],
)
async def test_rejected_create_partitions_has_kafkas_error_code(
    cluster: LocalCluster, admin: AdminClient, asked: tuple[Any, ...], code: ErrorCode, words: str
) -> None:
    if "confluent-few" not in admin.list_topics(timeout=30).topics:
        await create(cluster, admin, "confluent-few", [[1, 2], [2, 3]])
    (future,) = admin.create_partitions([NewPartitions(*asked)]).values()
    assert words in message(future)
    assert outcomes({0: future}) == {0: code}


@pytest.mark.row("R71")
async def test_incremental_alter_keeps_other_topic_settings_and_full_alter_resets_them(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    name = "confluent-configs"
    await create(cluster, admin, name, [[1, 2, 3]], **{"retention.ms": "5000"})
    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    change(admin, TOPIC, name, set_, segment_ms="7000", min_insync_replicas="3").result(60)
    change(admin, TOPIC, name, AlterConfigOpType.APPEND, cleanup_policy="compact").result(60)
    entries = shown(admin, TOPIC, name)
    assert entries["segment.ms"].value == "7000"
    assert entries["segment.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert entries["cleanup.policy"].value == "delete,compact"
    change(admin, TOPIC, name, AlterConfigOpType.SUBTRACT, cleanup_policy="compact").result(60)
    change(admin, TOPIC, name, delete, segment_ms=None).result(60)
    entries = shown(admin, TOPIC, name)
    assert (entries["cleanup.policy"].value, entries["retention.ms"].value) == ("delete", "5000")
    assert entries["segment.ms"].source == ConfigSource.DEFAULT_CONFIG.value
    replaced = ConfigResource(TOPIC, name, set_config={"retention.bytes": "9"})
    with pytest.deprecated_call():
        futures = admin.alter_configs([replaced])
    assert list(outcomes(futures).values()) == [0]
    entries = shown(admin, TOPIC, name)
    assert entries["retention.bytes"].value == "9"
    assert entries["retention.ms"].source == ConfigSource.DEFAULT_CONFIG.value


@pytest.mark.parametrize(
    ("kind", "name", "values", "code", "words"),
    [
        (TOPIC, "confluent-bad", {"segment_bytes": "3"}, ErrorCode.INVALID_CONFIG, "at least 14"),
        (TOPIC, "confluent-bad", {"no_such_key": "3"}, ErrorCode.INVALID_CONFIG, "no.such.key"),
        (TOPIC, "nowhere", {"segment_ms": "3"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "nowhere"),
        (BROKER, "2", {"broker_rack": "r"}, ErrorCode.INVALID_CONFIG, "broker.rack"),
        (BROKER, "2", {"min_insync_replicas": "0"}, ErrorCode.INVALID_CONFIG, "at least 1"),
    ],
)
async def test_rejected_setting_change_has_kafkas_error_code_and_states_the_reason(
    cluster: LocalCluster,
    admin: AdminClient,
    kind: Any,
    name: str,
    values: dict[str, str],
    code: ErrorCode,
    words: str,
) -> None:
    if "confluent-bad" not in admin.list_topics(timeout=30).topics:
        await create(cluster, admin, "confluent-bad", [[1]])
    future = change(admin, kind, name, AlterConfigOpType.SET, **values)
    assert words in message(future)
    assert outcomes({0: future}) == {0: code}


@pytest.mark.row("R71")
async def test_broker_settings_change_at_runtime_and_show_their_source(
    admin: AdminClient,
) -> None:
    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    change(admin, BROKER, "2", set_, log_segment_bytes="100000").result(60)
    await eventually(reads(admin, "2", "100000", ConfigSource.DYNAMIC_BROKER_CONFIG))
    await eventually(reads(admin, "3", "1073741824", ConfigSource.DEFAULT_CONFIG))
    assert shown(admin, BROKER, "1")["broker.id"].is_read_only
    assert not shown(admin, BROKER, "1")["log.segment.bytes"].is_read_only
    change(admin, BROKER, "2", delete, log_segment_bytes=None).result(60)
    await eventually(reads(admin, "2", "1073741824", ConfigSource.DEFAULT_CONFIG))


async def test_broker_stores_unknown_settings_and_hides_their_values(admin: AdminClient) -> None:
    set_, delete = AlterConfigOpType.SET, AlterConfigOpType.DELETE
    change(admin, BROKER, "2", set_, team_contact="a@b").result(60)
    entry = shown(admin, BROKER, "2")["team.contact"]
    assert (entry.value, entry.source) == (None, ConfigSource.DYNAMIC_BROKER_CONFIG.value)
    assert entry.is_sensitive
    assert entry.is_read_only
    change(admin, BROKER, "2", delete, team_contact=None).result(60)
    assert "team.contact" not in shown(admin, BROKER, "2")


def reads(admin: AdminClient, broker: str, value: str, source: ConfigSource) -> Callable[[], Any]:
    async def condition() -> bool:
        entry = shown(admin, BROKER, broker)["log.segment.bytes"]
        return (entry.value, entry.source) == (value, source.value)

    return condition


@pytest.mark.row("R61")
async def test_preferred_election_reports_partitions_that_need_no_election(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    await create(cluster, admin, "confluent-elect", [[3, 1, 2], [1, 3, 2]])
    await cluster.stop(3)
    await cluster.start(3)
    await eventually(lambda: _shows_isr(admin, "confluent-elect", 3))
    partitions = [TopicPartition("confluent-elect", number) for number in (0, 1, 7)]
    result = admin.elect_leaders(ElectionType.PREFERRED, partitions).result(60)
    codes = {tp.partition: error and error.code() for tp, error in result.items()}
    assert codes[1] == ErrorCode.ELECTION_NOT_NEEDED
    assert codes[7] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes[0] in (None, 0, ErrorCode.ELECTION_NOT_NEEDED)
    await eventually(lambda: _is_led(admin, "confluent-elect", {0: 3, 1: 1}))
    everything = admin.elect_leaders(ElectionType.PREFERRED, None).result(60)
    assert all(tp.topic != "confluent-elect" for tp in everything)


@pytest.mark.usefixtures("with_controller")
@pytest.mark.row("R63", "H3")
async def test_leaderless_partition_gets_a_leader_when_unclean_election_is_enabled(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    await create(cluster, admin, "confluent-unclean", [[2, 3]])
    await kill(cluster, 3)
    await eventually(lambda: _isr_is(cluster, "confluent-unclean", (2,)))
    await kill(cluster, 2)
    await cluster.start(3)
    await eventually(lambda: _shows_no_leader(admin, "confluent-unclean"))
    failed = admin.elect_leaders(
        ElectionType.PREFERRED, [TopicPartition("confluent-unclean", 0)]
    ).result(60)
    (error,) = failed.values()
    assert error.code() == ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    change(
        admin,
        TOPIC,
        "confluent-unclean",
        AlterConfigOpType.SET,
        **{UNCLEAN.replace(".", "_"): "true"},
    ).result(60)
    assert await cluster.leader_of("confluent-unclean", 0) == 3


@pytest.mark.usefixtures("with_controller")
@pytest.mark.row("R61", "H3")
async def test_elect_leaders_request_of_unclean_type_elects_a_leader_outside_the_isr(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    await create(cluster, admin, "confluent-asked", [[2, 3]])
    await kill(cluster, 3)
    await eventually(lambda: _isr_is(cluster, "confluent-asked", (2,)))
    await kill(cluster, 2)
    await cluster.start(3)
    await eventually(lambda: _shows_no_leader(admin, "confluent-asked"))
    partition = TopicPartition("confluent-asked", 0)
    result = admin.elect_leaders(ElectionType.UNCLEAN, [partition]).result(60)
    assert [error and error.code() for error in result.values()] in ([None], [0])
    await eventually(lambda: _is_led(admin, "confluent-asked", {0: 3}))


async def _shows_isr(admin: AdminClient, topic: str, size: int) -> bool:
    partitions = admin.list_topics(topic, timeout=30).topics[topic].partitions.values()
    return all(len(partition.isrs) == size for partition in partitions)


async def _shows_no_leader(admin: AdminClient, topic: str) -> bool:
    return leaders(admin, topic) == {0: -1}


async def _isr_is(cluster: LocalCluster, topic: str, isr: tuple[int, ...]) -> bool:
    views = (await cluster.state()).partitions
    found = [tuple(view.isr) for tp, view in views.items() if tp.topic == topic]
    return bool(found) and all(each == isr for each in found)


@pytest.mark.row("L1")
async def test_deleted_topic_can_be_created_again(
    cluster: LocalCluster, admin: AdminClient
) -> None:
    for _ in range(3):
        await create(cluster, admin, "confluent-again", [[1, 2, 3]])
        assert outcomes(admin.delete_topics(["confluent-again"])) == {"confluent-again": 0}
        await eventually(lambda: _is_gone(admin, "confluent-again"))
    assert outcomes(admin.delete_topics(["confluent-again"])) == {
        "confluent-again": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


async def _is_gone(admin: AdminClient, topic: str) -> bool:
    """True if the broker would accept the creation of a topic with this name."""
    asked = NewTopic(topic, 1, 3)
    return outcomes(admin.create_topics([asked], validate_only=True)) == {topic: 0}


async def test_scram_credentials_are_described_as_none(admin: AdminClient) -> None:
    assert admin.describe_user_scram_credentials().result(60) == {}
    absent = admin.describe_user_scram_credentials(["a"])
    assert outcomes(absent) == {"a": ErrorCode.RESOURCE_NOT_FOUND}
