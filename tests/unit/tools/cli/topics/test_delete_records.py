"""The command `topics delete-records`: the offsets that it sends, its output and exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.commands.scripted_admin import ScriptedAdmin

from minikafka.base.errors import ErrorCode
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.client.administration.results import DeletedRecords, Outcome
from minikafka.tools.cli.topics import topics

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> ScriptedAdmin:
    scripted = ScriptedAdmin({T0: (1, 2), T1: (2, 1)})
    scripted.ends = {T0: 10, T1: 5}
    monkeypatch.setattr("minikafka.client.Client", lambda servers, **_: scripted)
    return scripted


def call(*arguments: str) -> Result:
    return CliRunner().invoke(topics, ["delete-records", *arguments, "--bootstrap", "h:1"])


def written(path: Path, *entries: object) -> str:
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    return str(path)


def test_records_of_named_partitions_are_deleted_below_one_offset(admin: ScriptedAdmin) -> None:
    done = call("t-0", "t-1", "--before-offset", "4")
    assert (done.exit_code, admin.starts) == (0, {T0: 4, T1: 4})
    assert done.stdout == "partition: t-0\tlow_watermark: 4\npartition: t-1\tlow_watermark: 4\n"


def test_delete_records_of_a_topic_applies_to_all_its_partitions(admin: ScriptedAdmin) -> None:
    assert call("--topic", "t", "--before-offset", "-1").exit_code == 0
    assert admin.starts == {T0: 10, T1: 5}


def test_delete_records_reads_offsets_from_the_file_of_kafkas_tool(
    admin: ScriptedAdmin, tmp_path: Path
) -> None:
    file = written(
        tmp_path / "cut.json",
        {"topic": "t", "partition": 0, "offset": 3},
        {"topic": "t", "partition": 1, "offset": -1},
    )
    done = call("--offset-json-file", file, "--json")
    assert (done.exit_code, admin.starts) == (0, {T0: 3, T1: 5})
    assert [row["low_watermark"] for row in json.loads(done.stdout)] == [3, 5]


def test_delete_records_fails_for_a_refused_partition_and_deletes_the_rest(
    admin: ScriptedAdmin,
) -> None:
    done = call("t-0", "t-1", "--before-offset", "6")
    assert (done.exit_code, admin.starts) == (1, {T0: 6})
    assert done.stderr == (
        "minikafka: OFFSET_OUT_OF_RANGE: t-1: the log of the partition does not have this offset\n"
    )


def test_delete_records_below_the_log_start_says_that_nothing_was_deleted(
    admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def keep(before: object) -> dict[TopicPartition, DeletedRecords]:
        return {
            T0: DeletedRecords(Outcome(ErrorCode.NONE), 7),
            T1: DeletedRecords(Outcome(ErrorCode.NONE), 4),
        }

    monkeypatch.setattr(admin, "delete_records", keep)
    done = call("t-0", "t-1", "--before-offset", "4")
    assert (done.exit_code, done.stderr) == (
        0,
        "minikafka: t-0: nothing was deleted: its log begins at offset 7 already\n",
    )


def test_delete_records_names_the_topic_that_does_not_exist(
    admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = AnsweredError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t")

    async def refuse(before: object) -> dict[TopicPartition, DeletedRecords]:
        return {T0: DeletedRecords(Outcome(error.code, error.reason), -1)}

    monkeypatch.setattr(admin, "delete_records", refuse)
    done = call("t-0", "--before-offset", "4")
    said = "minikafka: UNKNOWN_TOPIC_OR_PARTITION: t-0: there is no topic t\n"
    assert (done.exit_code, done.stderr) == (1, said)


def test_delete_records_prints_the_reason_for_a_refused_partition(
    admin: ScriptedAdmin, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = DeletedRecords(Outcome(ErrorCode.NETWORK_EXCEPTION, "no broker answers at h:1"), -1)

    async def refuse(before: object) -> dict[TopicPartition, DeletedRecords]:
        return {T0: silent}

    monkeypatch.setattr(admin, "delete_records", refuse)
    done = call("t-0", "--before-offset", "1")
    assert done.stderr == "minikafka: NETWORK_EXCEPTION: t-0: no broker answers at h:1\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["t-0"],
        ["--before-offset", "3"],
        ["t-0", "--before-offset", "-2"],
        ["t-0", "--offset-json-file", "cut.json"],
        ["--before-offset", "3", "--offset-json-file", "cut.json"],
    ],
)
def test_delete_records_refuses_missing_invalid_or_contradictory_arguments(
    admin: ScriptedAdmin, arguments: list[str]
) -> None:
    assert call(*arguments).exit_code == 2
    assert admin.starts == {}


@pytest.mark.parametrize("offset", [None, -2, "4", True])
def test_file_with_an_invalid_offset_is_a_usage_error(
    admin: ScriptedAdmin, tmp_path: Path, offset: object
) -> None:
    file = written(tmp_path / "cut.json", {"topic": "t", "partition": 0, "offset": offset})
    done = call("--offset-json-file", file)
    assert done.exit_code == 2
    assert "offset must be a number, or -1" in done.stderr


def test_file_that_names_a_partition_twice_is_a_usage_error(
    admin: ScriptedAdmin, tmp_path: Path
) -> None:
    row = {"topic": "t", "partition": 0, "offset": 1}
    done = call("--offset-json-file", written(tmp_path / "cut.json", row, row))
    assert done.exit_code == 2
    assert "t-0 is named twice" in done.stderr
