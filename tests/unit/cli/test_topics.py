"""Topics as lines and as JSON."""

from __future__ import annotations

import pytest

from minikafka.cli.topics import _as_json, _print
from minikafka.client import PartitionInfo, TopicInfo

TOPIC = TopicInfo(
    "t",
    bytes(range(16)),
    {
        1: PartitionInfo(1, -1, 4, (2, 3), (3,), (2,), 5),
        0: PartitionInfo(0, 1, 2, (1, 2), (1, 2), (), 0),
    },
)


def test_the_lines_are_those_of_kafkas_own_tool(capsys: pytest.CaptureFixture[str]) -> None:
    _print(TOPIC)
    assert capsys.readouterr().out == (
        "Topic: t\tTopicId: AAECAwQFBgcICQoLDA0ODw\tPartitionCount: 2\tReplicationFactor: 2\n"
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1,2\n"
        "\tTopic: t\tPartition: 1\tLeader: none\tReplicas: 2,3\tIsr: 3\n"
    )


def test_json_says_the_same_with_null_for_no_leader() -> None:
    found = _as_json(TOPIC)
    assert [row["leader"] for row in found["partitions"]] == [1, None]
    assert found["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
