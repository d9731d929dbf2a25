"""The files of checkpoints that Spark's own Kafka connector writes, and that it continues."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.spark.pipelines.to_connector import rewrite_offsets
from minikafka.spark.source.connector_checkpoint import first_of_connector
from minikafka.spark.source.positions import to_json
from minikafka.spark.wire.leaders import Position

FACTS = '{"batchWatermarkMs":0,"batchTimestampMs":1700000000000,"conf":{}}'
START = {TopicPartition("t", 0): Position(5, 1, "id"), TopicPartition("t", 1): Position(0, 1, "id")}
END = {TopicPartition("t", 0): Position(9, 1, "id"), TopicPartition("t", 1): Position(4, 1, "id")}


def write(directory: Path, name: str, text: str) -> None:
    path = directory / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def start_file(tree: dict) -> str:
    return "\0v1\n" + json.dumps(tree)


def test_start_is_that_of_the_source_with_the_same_topics(tmp_path):
    write(tmp_path, "sources/0/0", start_file({"u": {"0": 7}}))
    write(tmp_path, "sources/1/0", start_file({"t": {"0": 3, "1": 0}}))
    found = first_of_connector(str(tmp_path), {"t": {"0": 9, "1": 4}})
    assert found == {
        TopicPartition("t", 0): Position(3, -1),
        TopicPartition("t", 1): Position(0, -1),
    }


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "cannot read"),
        ({"sources/0/0": start_file({"u": {"0": 7}})}, "have no start of t"),
        (
            {
                "sources/0/0": start_file({"t": {"0": 7}}),
                "sources/1/0": start_file({"t": {"0": 8}}),
            },
            "have 2 different starts of t: finish micro-batch 0",
        ),
        ({"sources/0/0": "\0v2\n{}"}, "version 'v2' instead of v1"),
    ],
)
def test_checkpoint_without_one_start_is_refused(tmp_path, files, message):
    for name, text in files.items():
        write(tmp_path, name, text)
    with pytest.raises(ConfigError, match=message):
        first_of_connector(str(tmp_path), {"t": {"0": 9}})


def test_missing_option_for_the_checkpoint_is_named():
    with pytest.raises(ConfigError, match="set option checkpointLocation also for the source"):
        first_of_connector(None, {"t": {"0": 9}})


def test_rewritten_files_have_plain_offsets_and_the_start_of_each_source(tmp_path):
    first = json.dumps(to_json(END, START))
    write(tmp_path, "offsets/0", f"v1\n{FACTS}\n-\n{first}\n17")
    write(tmp_path, "offsets/.0.crc", "the checksum of the file that is replaced")
    write(tmp_path, "offsets/1", f'v1\n{FACTS}\n-\n{json.dumps(to_json(END))}\n{{"other": 3}}')
    assert rewrite_offsets(str(tmp_path)) == ["offsets/0", "offsets/1", "sources/1/0"]
    plain = '{"t":{"0":9,"1":4}}'
    assert (tmp_path / "offsets/0").read_text() == f"v1\n{FACTS}\n-\n{plain}\n17"
    assert (tmp_path / "offsets/1").read_text() == f'v1\n{FACTS}\n-\n{plain}\n{{"other": 3}}'
    assert (tmp_path / "sources/1/0").read_text() == '\0v1\n{"t":{"0":5,"1":0}}'
    assert sorted(path.name for path in (tmp_path / "offsets").iterdir()) == ["0", "1"]
    assert rewrite_offsets(str(tmp_path)) == []


def test_offset_log_of_version_2_keeps_the_names_of_its_sources(tmp_path):
    line = json.dumps(to_json(END))
    write(tmp_path, "offsets/4", f"v2\n{FACTS}\nclicks:{line}")
    assert rewrite_offsets(f"file://{tmp_path}") == ["offsets/4"]
    text = (tmp_path / "offsets/4").read_text()
    assert text == f'v2\n{FACTS}\nclicks:{{"t":{{"0":9,"1":4}}}}'


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "has no files offsets/N: name the checkpointLocation of a query"),
        ({"offsets/0": "v7\n{}"}, "offsets/0: its first line must be v1 or v2, not 'v7'"),
        ({"offsets/0": ""}, "offsets/0: its first line must be v1 or v2, not ''"),
        (
            {"offsets/0": f"v1\n{FACTS}\n{json.dumps(to_json(END))}"},
            "micro-batch 0 is not finished, and its plan has no start",
        ),
    ],
)
def test_checkpoint_that_the_connector_could_not_continue_stays_as_it_is(tmp_path, files, message):
    for name, text in files.items():
        write(tmp_path, name, text)
    with pytest.raises(ConfigError, match=message):
        rewrite_offsets(str(tmp_path))
    assert all((tmp_path / name).read_text() == text for name, text in files.items())


def test_checkpoint_with_a_finished_first_micro_batch_needs_no_start(tmp_path):
    write(tmp_path, "offsets/0", f"v1\n{FACTS}\n{json.dumps(to_json(END))}")
    write(tmp_path, "commits/0", "v1\n{}")
    assert rewrite_offsets(str(tmp_path)) == ["offsets/0"]
