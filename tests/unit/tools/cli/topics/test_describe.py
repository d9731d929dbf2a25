"""Topics as lines and as JSON."""

from __future__ import annotations

import pytest
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.errors import KafkaError
from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.client import PartitionInfo, TopicInfo
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.tools.cli.topics.describe import TopicsView, as_json_topic, lines, read_topics

TOPIC = TopicInfo(
    "t",
    bytes(range(16)),
    {
        1: PartitionInfo(1, -1, 4, (2, 3), (3,), (2,), 5),
        0: PartitionInfo(0, 1, 2, (3, 1, 2), (1, 2), (), 0),
    },
)
MOVING = {TopicPartition("t", 0): ReplicaAssignment((1, 2)).reassigned_to((3, 1))}
VIEW = TopicsView([TOPIC], {"t": {"retention.ms": "5"}}, MOVING)


def test_topic_lines_are_the_same_as_in_kafkas_tool() -> None:
    assert list(lines(TOPIC, VIEW, with_header=True)) == [
        "Topic: t\tTopicId: AAECAwQFBgcICQoLDA0ODw\tPartitionCount: 2\tReplicationFactor: 3"
        "\tConfigs: retention.ms=5",
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 3,1,2\tIsr: 1,2"
        "\tAdding Replicas: 3\tRemoving Replicas: 2",
        "\tTopic: t\tPartition: 1\tLeader: none\tReplicas: 2,3\tIsr: 3",
    ]


def test_json_has_null_for_a_missing_leader() -> None:
    found = as_json_topic(TOPIC, VIEW)
    assert [row["leader"] for row in found["partitions"]] == [1, None]
    assert [row["adding"] for row in found["partitions"]] == [[3], []]
    assert found["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert found["configs"] == {"retention.ms": "5"}
    assert found["internal"] is False
    assert as_json_topic(TOPIC._replace(is_internal=True), VIEW)["internal"] is True


@pytest.mark.parametrize("option", ["under_replicated", "unavailable"])
def test_partition_filters_ignore_replicas_that_are_being_added(
    option: str,
) -> None:
    options = {"under_replicated": False, "unavailable": False, option: True}
    assert [list(topic.partitions) for topic in VIEW.only(**options).topics] == [[1]]
    without_moves = VIEW._replace(moving={})
    kept = [sorted(topic.partitions) for topic in without_moves.only(**options).topics]
    assert kept == [[0, 1] if option == "under_replicated" else [1]]


async def test_topics_are_read_with_their_settings_and_reassignments() -> None:
    tp = TopicPartition("t", 0)
    admin = ScriptedAdmin({tp: (1, 2), TopicPartition("u", 0): (1,)})
    admin.paused = {5}
    admin.configs[Resource(ResourceType.TOPIC, "t")] = {"retention.ms": "5"}
    await admin.alter_reassignments({tp: (5,)})
    found = await read_topics(admin, ["t"])
    assert [topic.name for topic in found.topics] == ["t"]
    assert found.configs == {"t": {"retention.ms": "5"}}
    assert found.reassignment_of("t", 0).adding == (5,)
    assert [topic.name for topic in (await read_topics(admin, [])).topics] == ["t", "u"]
    with pytest.raises(KafkaError, match="none"):
        await read_topics(admin, ["t", "none"])


async def test_topic_states_are_shown_without_a_controller() -> None:
    admin = ScriptedAdmin({TopicPartition("t", 0): (1, 2)})
    admin.controller = -1
    found = await read_topics(admin, ["t"])
    assert (len(found.topics), found.configs, found.moving) == (1, {}, {})
