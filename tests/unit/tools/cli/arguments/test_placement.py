"""Parsing of partition names and reassignment plans."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from minikafka.base.model import TopicPartition
from minikafka.tools.cli.arguments import placement

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def written(path: Path, content: object) -> str:
    file = path / "plan.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)


@pytest.mark.row("K1")
def test_replicas_can_be_given_by_options_for_one_or_more_partitions() -> None:
    assert placement.given_plan([T0], ["3,4,5"]) == {T0: (3, 4, 5)}
    assert placement.given_plan([T0, T1], ["3,4", "4, 5"]) == {T0: (3, 4), T1: (4, 5)}
    assert placement.given_partitions(["t"], [0, 1]) == [T0, T1]
    assert placement.given_partitions(["t", "u"], [0, 0]) == [T0, U0]


@pytest.mark.parametrize(
    ("topics", "partitions", "replicas", "problem"),
    [
        (["t", "u"], [0], ["1"], "--topic once"),
        (["t"], [0, 1], ["1"], "--replicas once for each"),
        (["t"], [0, 0], ["1", "2"], "t-0 is named twice"),
        (["t"], [0], ["1,1"], "a broker is named twice"),
        (["t"], [0], ["1,,2"], "write 1,2,3"),
        (["t"], [0], ["one"], "write 1,2,3"),
        (["t"], [0], ["99999999999"], "write 1,2,3"),
    ],
)
def test_inconsistent_topic_partition_and_replica_options_are_refused(
    topics: list[str], partitions: list[int], replicas: list[str], problem: str
) -> None:
    with pytest.raises(click.UsageError, match=problem):
        placement.given_plan(placement.given_partitions(topics, partitions), replicas)


def test_reassignment_file_has_the_json_of_kafkas_tool(tmp_path: Path) -> None:
    content = {
        "version": 1,
        "partitions": [
            {"topic": "t", "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "any"]},
            {"topic": "u", "partition": 0, "replicas": [2], "log_dirs": ["any"]},
        ],
    }
    plan = placement.plan_file(written(tmp_path, content))
    assert plan == {T0: (3, 1), U0: (2,)}
    assert placement.as_json(plan) == content
    assert placement.partitions_file(written(tmp_path, content)) == [T0, U0]


def test_reassignment_file_may_omit_version_and_log_directories(tmp_path: Path) -> None:
    entry = {"topic": "t", "partition": 0, "replicas": [3]}
    assert placement.plan_file(written(tmp_path, {"partitions": [entry]})) == {T0: (3,)}


ENTRY = {"topic": "t", "partition": 0, "replicas": [1]}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("not json", "not JSON"),
        ([], "expected"),
        ({"partitions": {}}, "expected"),
        ({"partitions": []}, "list of partitions is empty"),
        ({"version": 2, "partitions": [ENTRY]}, "version must be 1"),
        ("[" * 100_000, r"plan\.json: the JSON is nested too deeply"),
        ('{"partitions":[{"partition":' + "9" * 5_000 + "}]}", "a number of more than 4300 digits"),
        ('{"partitions":[{"partition":NaN}]}', "NaN is not a JSON number"),
        ('{"partitions":[],"partitions":[]}', "the field 'partitions' is given twice"),
        ("\ufeff{}", "begins with a byte order mark"),
        (
            {"partitions": [{**ENTRY, "topic": 5}]},
            r"partitions\[0\]: topic: '5' is not a topic name",
        ),
        ({"partitions": [{**ENTRY, "topic": "\ud800"}]}, r"'\\ud800' is not a topic name"),
        ({"partitions": [{**ENTRY, "topic": ["t"]}]}, "is not a topic name"),
        ({"partitions": [{**ENTRY, "partition": 1e400}]}, "partition must be|not a JSON number"),
        ({"partitions": [[]]}, "expected"),
        ({"partitions": [{**ENTRY, "replicas": [[1]]}]}, "replicas must be"),
        ({"partitions": [{**ENTRY, "log_dirs": 5}]}, "log_dirs"),
        ({"partitions": [{**ENTRY, "log_dirs": [[]]}]}, "log_dirs"),
        ({"partitions": [{**ENTRY, "partition": -1}]}, "partition must be"),
        ({"partitions": [{**ENTRY, "partition": True}]}, "partition must be"),
        ({"partitions": [{**ENTRY, "replicas": []}]}, "replicas must be"),
        ({"partitions": [{**ENTRY, "replicas": ["1"]}]}, "replicas must be"),
        ({"partitions": [{**ENTRY, "replicas": [1, 1]}]}, "named twice"),
        ({"partitions": [ENTRY, ENTRY]}, r"partitions\[1\]: t-0 is named twice"),
        ({"partitions": [{**ENTRY, "log_dirs": ["d"]}]}, "log_dirs"),
        ({"partitions": [{**ENTRY, "log_dirs": ["/d"] * 9}]}, "log_dirs"),
    ],
)
def test_error_about_an_invalid_reassignment_file_says_what_is_wrong(
    tmp_path: Path, content: object, problem: str
) -> None:
    with pytest.raises(click.UsageError, match=problem):
        placement.plan_file(written(tmp_path, content))


def test_manual_assignment_has_the_format_of_kafkas_topic_tool() -> None:
    assert placement.manual_assignment("1:2:3,2:3:1") == {0: (1, 2, 3), 1: (2, 3, 1)}
    for text in ("1:2,", "1:1", "a:b", ""):
        with pytest.raises(click.UsageError):
            placement.manual_assignment(text)


@pytest.mark.parametrize("text", ["t", "t-", "-0", "t-²", "t-٣", "t-01", "t-1_0", "..-0", "a b-0"])
def test_malformed_partition_name_is_a_usage_error(text: str) -> None:
    with pytest.raises(click.UsageError, match="write TOPIC-PARTITION, as in t-0"):
        placement.parse_partition(text)


def test_directories_of_a_plan_are_those_that_it_names(tmp_path: Path) -> None:
    entry = {"topic": "t", "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "/d/"]}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"partitions": [entry]}))
    assert placement.plan_file(str(file)) == {T0: (3, 1)}
    directories = placement.directories_file(str(file))
    assert directories == {(T0, 1): "/d"}
    again = placement.as_json({T0: (3, 1)}, directories)
    assert again["partitions"][0]["log_dirs"] == ["any", "/d"]
