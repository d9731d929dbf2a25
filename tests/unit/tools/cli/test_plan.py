"""The command `plan` with a scripted cluster."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.runtime.clock import SystemRng
from minikafka.tools.cli.execution import sources as opened
from minikafka.tools.cli.plan import answer as module
from minikafka.tools.cli.plan import plan
from minikafka.tools.cluster import ClusterError
from minikafka.tools.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord
from minikafka.tools.cluster.ports import free_ports

WRITE = {
    "kind": "write",
    "cause": "4-1",
    "check": {"path": "/controller_epoch", "version": 1},
    "outcome": "ok",
    "operations": [{"op": "set", "path": "/a", "expected": 1, "actual": 2, "data": "x"}],
}
DECISION = {"kind": "decision", "cause": "4-1", "verdict": "move", "machine": "replica"}
ASSUMED = {"kind": "assumed", "cause": "", "text": "broker 2 dies, its session expires"}


class Scripted:
    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.directory = SimpleNamespace(path="DIR")
        self.answers: dict[int, Any] = {
            1: KafkaError(ErrorCode.NOT_CONTROLLER),
            2: {"lines": [ASSUMED, WRITE, DECISION]},
        }

    async def ask(self, method: str, body: dict[str, Any], timeout_ms: int) -> dict[int, Any]:
        self.asked.append(body)
        return self.answers


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    found = Scripted()
    monkeypatch.setattr(module, "find_running_cluster", lambda data: found)
    monkeypatch.setattr(opened, "find_cluster", lambda data: found)
    return found


def test_plan_command_prints_plan_lines_received_from_the_controller_in_order(
    cluster: Scripted,
) -> None:
    done = CliRunner().invoke(plan, ["kill-broker", "2", "-v"])
    assert done.exit_code == 0
    summary = ["assumed: broker 2 dies, its session expires", "1 write to ZooKeeper, 0 requests"]
    assert [" ".join(line.split()) for line in done.output.splitlines()] == [
        *summary,
        "4-1 write ok: set /a at version 1 -> 2",
    ]
    assert CliRunner().invoke(plan, ["kill-broker", "2"]).output.splitlines() == summary
    assert cluster.asked == [{"operation": "kill-broker", "broker": 2}] * 2


def test_plan_json_contains_every_plan_line_received_from_the_controller(cluster: Scripted) -> None:
    done = CliRunner().invoke(plan, ["kill-broker", "2", "--json"])
    shown = json.loads(done.output)
    assert shown["question"] == {"operation": "kill-broker", "broker": 2}
    assert [line["kind"] for line in shown["lines"]] == ["assumed", "write", "decision"]


@pytest.mark.parametrize(
    ("arguments", "question"),
    [
        (
            "reassign -t t -p 0 --replicas 1,2,3",
            {"operation": "reassign", "targets": [["t", 0, [1, 2, 3]]]},
        ),
        ("delete-topic t u", {"operation": "delete-topic", "topics": ["t", "u"]}),
        ("elect t-1", {"operation": "elect", "unclean": False, "partitions": [("t", 1)]}),
        ("elect", {"operation": "elect", "unclean": False, "partitions": None}),
        ("elect --preferred", {"operation": "elect", "unclean": False, "partitions": None}),
        (
            "elect -t t --unclean",
            {"operation": "elect", "unclean": True, "partitions": None, "topics": ["t"]},
        ),
        ("elect -t t -p 1", {"operation": "elect", "unclean": False, "partitions": [("t", 1)]}),
    ],
)
def test_plan_command_sends_its_options_to_the_controller_as_a_request(
    cluster: Scripted, arguments: str, question: dict[str, Any]
) -> None:
    assert CliRunner().invoke(plan, arguments.split()).exit_code == 0
    assert cluster.asked == [question]


def test_plan_reassign_accepts_a_file_of_kafkas_reassignment_tool(
    cluster: Scripted, tmp_path: Any
) -> None:
    file = tmp_path / "move.json"
    entry = {"topic": "t", "partition": 0, "replicas": [3, 1]}
    file.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    assert CliRunner().invoke(plan, ["reassign", "--file", str(file)]).exit_code == 0
    assert cluster.asked == [{"operation": "reassign", "targets": [["t", 0, [3, 1]]]}]


@pytest.mark.parametrize(
    "arguments",
    ["reassign", "reassign --file x.json -t t", "kill-broker", "kill-broker two", "delete-topic"],
)
def test_plan_command_exits_with_code_2_when_its_arguments_are_invalid(
    cluster: Scripted, arguments: str
) -> None:
    assert CliRunner().invoke(plan, arguments.split()).exit_code == 2


def test_plan_command_raises_the_error_of_the_controller(cluster: Scripted) -> None:
    cluster.answers[2] = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "broker 9 is not alive")
    done = CliRunner().invoke(plan, ["kill-broker", "9"])
    assert isinstance(done.exception, KafkaError)
    assert done.exception.code is ErrorCode.BROKER_NOT_AVAILABLE


def test_plan_command_fails_without_a_controller(cluster: Scripted) -> None:
    cluster.answers = {1: KafkaError(ErrorCode.NOT_CONTROLLER), 2: ConnectionRefusedError()}
    done = CliRunner().invoke(plan, ["kill-broker", "2"])
    assert isinstance(done.exception, KafkaError)
    assert done.exception.code is ErrorCode.NOT_CONTROLLER


def test_error_says_how_to_start_brokers_when_all_are_down(
    tmp_path: Path,
) -> None:
    (port,) = free_ports(1, SystemRng())
    record = ClusterRecord((BrokerRecord(1, port, 1),), "127.0.0.1:1")
    ClusterDirectory(tmp_path).write(record)
    done = CliRunner().invoke(plan, ["kill-broker", "1", "--data", str(tmp_path)])
    assert isinstance(done.exception, ClusterError)
    assert f"minikafka up --data {tmp_path} starts all" in str(done.exception)
