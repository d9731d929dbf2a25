"""What a command that waits prints on standard error."""

from __future__ import annotations

import asyncio
from typing import Any

import click
import pytest
from click.testing import CliRunner

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Outcome
from minikafka.client.waits import Waits
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cli.arguments.options import timeout_option
from minikafka.tools.cli.execution import waiting as module
from minikafka.tools.cli.execution.running import run, run_with_client, tell_causes_of
from minikafka.tools.cli.execution.waiting import (
    ClientWaits,
    CommandWatch,
    local_cluster,
    partition_in,
)
from minikafka.tools.cluster.directory import BrokerRecord, ClusterDirectory, ClusterRecord


async def test_reason_is_printed_again_only_if_it_has_changed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AGAIN_MS", 1)
    monkeypatch.setattr(module, "_TICK_MS", 1)
    texts = iter(["", "a", "a", "b", "", "b"])
    done = asyncio.Event()

    async def reason() -> str:
        text = next(texts, None)
        if text is None:
            done.set()
            await asyncio.Event().wait()
        return text or ""

    waiting = CommandWatch(reason)
    task = asyncio.ensure_future(waiting.tell())
    await done.wait()
    task.cancel()
    assert capsys.readouterr().err == "waiting for a\nwaiting for b\n"
    assert waiting.last == "b"


class Stub:
    """A client with waits, in place of the client of a command."""

    def __init__(self) -> None:
        self.waits = Waits()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> ClientWaits:
    """The waits of a stub client. No cluster on this machine has its address."""
    monkeypatch.setattr(module, "local_cluster", lambda servers: (None, ""))
    found = ClientWaits("h:1")
    found.client = Stub()  # type: ignore[assignment]
    return found


def begin(waits: ClientWaits, ago_ms: int, tp: TopicPartition | None = None) -> Any:
    client: Any = waits.client
    return client.waits.begin("the controller", SystemClock().now() - ago_ms, tp)


async def test_short_wait_has_no_reason(waits: ClientWaits) -> None:
    assert await waits.reason() == ""
    wait = begin(waits, 0)
    assert await waits.reason() == ""
    wait.since -= module.FIRST_MS
    assert await waits.reason() == ""
    wait.since -= module.SURE_MS
    assert await waits.reason() == "the controller: there is no answer yet"
    wait.error = KafkaError(ErrorCode.NOT_CONTROLLER, "nobody")
    assert await waits.reason() == "the controller: NOT_CONTROLLER: nobody"


async def test_reason_is_the_cause_that_is_found_on_this_machine(
    waits: ClientWaits, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    async def why_partition(local: object, tp: object, *_: object) -> str:
        asked.append(tp)
        return "broker 2 is down" if tp == TopicPartition("t", 0) else ""

    async def why_cluster(*_: object) -> str:
        return "ZooKeeper is down"

    monkeypatch.setattr(module, "local_cluster", lambda servers: (object(), ""))
    monkeypatch.setattr("minikafka.tools.explain.blockers.why_partition_waits", why_partition)
    monkeypatch.setattr("minikafka.tools.explain.blockers.why_cluster_waits", why_cluster)
    wait = begin(waits, module.FIRST_MS, TopicPartition("t", 0))
    assert await waits.reason() == "the controller: broker 2 is down"
    wait.tp, wait.error = None, KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "u-1")
    assert await waits.reason() == "the controller: ZooKeeper is down"
    assert asked == [TopicPartition("t", 0), TopicPartition("u", 1)]


async def test_wait_that_ends_during_its_examination_is_not_mentioned(
    waits: ClientWaits, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = begin(waits, 60_000)

    async def causes(*_: object) -> str:
        client: Any = waits.client
        client.waits.end(wait)
        return "ZooKeeper is down"

    monkeypatch.setattr(waits, "causes", causes)
    assert await waits.reason() == ""
    begin(waits, module.FIRST_MS // 2).about = "the leader of t-0"
    assert await waits.reason() == "the leader of t-0: ZooKeeper is down"


@pytest.mark.parametrize(
    ("detail", "expected"),
    [
        ("events-0", TopicPartition("events", 0)),
        ("a-b-12 at offset 7", TopicPartition("a-b", 12)),
        ("there is no active controller", None),
    ],
)
def test_partition_is_found_at_the_start_of_an_error(
    detail: str, expected: TopicPartition | None
) -> None:
    assert partition_in(KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, detail)) == expected


def test_local_cluster_is_used_only_for_its_own_addresses(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert local_cluster(None) == (None, "")
    (tmp_path / "data").mkdir()
    brokers = (BrokerRecord(1, 9092, 1), BrokerRecord(2, 9093, 2))
    ClusterDirectory(tmp_path / "data").write(ClusterRecord(brokers, "127.0.0.1:1"))
    assert local_cluster("127.0.0.1:9093")[0] is not None
    assert local_cluster(None)[0] is not None
    assert local_cluster("127.0.0.1:9093,other:9092")[0] is None


@click.command()
@timeout_option
def late() -> None:
    async def reason() -> str:
        return "broker 1 to serve clients: it starts"

    run(asyncio.Event().wait(), reason=reason)


def test_error_of_a_command_that_runs_out_of_time_says_what_it_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("minikafka.tools.cli.execution.running.WORK_MS", 0)
    done = CliRunner().invoke(late, ["--timeout", "0.1"])
    assert done.stderr == "waiting for broker 1 to serve clients: it starts\n"
    assert done.exception is not None
    assert getattr(done.exception, "hint", "") == (
        "it waited for broker 1 to serve clients: it starts"
    )


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (ErrorCode.NOT_CONTROLLER, "ZooKeeper is down"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ""),
        (ErrorCode.INVALID_CONFIG, ""),
    ],
)
def test_error_because_of_the_condition_of_the_cluster_names_the_causes(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, hint: str
) -> None:
    async def causes(*_: object) -> str:
        return "ZooKeeper is down"

    async def work(_: object) -> None:
        raise KafkaError(code)

    monkeypatch.setattr(ClientWaits, "causes", causes)
    with pytest.raises(KafkaError) as caught:
        run_with_client(work, "127.0.0.1:1")
    assert caught.value.hint == hint


def test_refusal_because_brokers_are_away_is_followed_by_the_causes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def causes(*_: object) -> str:
        return "broker 3 is down"

    monkeypatch.setattr(ClientWaits, "causes", causes)
    tell_causes_of([Outcome(ErrorCode.NONE), Outcome(ErrorCode.INVALID_CONFIG)])
    assert capsys.readouterr().err == ""
    tell_causes_of([Outcome(ErrorCode.INVALID_REPLICATION_FACTOR)])
    assert capsys.readouterr().err == "cause: broker 3 is down\n"
