"""The command `verdict` on histories in files and the log directories of brokers that are down."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.storage.replica_logs import ReplicaLogs, batch

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import Recorder, parse
from minikafka.storage.log import checkpoints
from minikafka.tools.cli.main import main
from minikafka.tools.verdict.judge import judge
from minikafka.tools.verdict.logs import ReadLogs
from minikafka.tools.verdict.report import VerdictError

TP = TopicPartition("t", 0)
Run = Callable[..., int]


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A history in which the record `a` was acknowledged; it is on two replicas."""
    logs = ReplicaLogs(tmp_path / "data", [1, 2])
    logs.append(TP, batch([b"a"], 0))
    for broker in (1, 2):
        logs.checkpoint(broker, checkpoints.HIGH_WATERMARKS, {TP: 1})
    lines: list[str] = []
    recorder = Recorder("c", None, lines.append, lambda: 0.0)
    recorder.ended(recorder.write("t", b"a"), partition=0, offset=0)
    (tmp_path / "history.jsonl").write_text("".join(lines))
    return tmp_path / "history.jsonl"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, history: Path) -> Run:
    def run(*arguments: str) -> int:
        words = ["minikafka", "verdict", *arguments]
        if "--data" not in arguments:
            words += ["--data", str(history.parent / "data")]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            main()
        assert isinstance(ended.value.code, int)
        return ended.value.code

    return run


def test_logs_with_all_acknowledged_records_end_with_0(
    run: Run, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(history)) == 0
    assert capsys.readouterr().out == "no anomaly (1 writes)\n"
    assert run(str(history.parent)) == 0


def test_lost_record_ends_with_1_and_is_shown(
    run: Run, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with history.open("a") as file:
        recorder = Recorder("d", None, file.write, lambda: 0.0)
        recorder.ended(recorder.write("t", b"b"), partition=0, offset=1)
    assert run(str(history)) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("lost t-0 offset 1 at 0.000 s, value 'b' (d): it is in no log\n")
    assert run(str(history), "--json") == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert (finding["kind"], finding["offset"], finding["value"]) == ("lost", 1, "b")


def test_plain_lines_are_read(run: Run, history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = {"producer": "p", "sequence": 0, "topic": "t", "outcome": "ok", "value": "a"}
    history.write_text(json.dumps({**plain, "partition": 0, "offset": 0}) + "\n")
    assert run(str(history)) == 0
    history.write_text(json.dumps({**plain, "partition": 0, "offset": 5, "value": "b"}) + "\n")
    assert run(str(history)) == 1
    assert "lost t-0 offset 5" in capsys.readouterr().out


def test_send_without_outcome_is_stuck_after_the_given_time(
    run: Run, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    times = iter((1.0, 9.0, 9.0))
    recorder = Recorder("e", None, lines.append, lambda: next(times))
    recorder.write("t", b"c")
    recorder.ended(recorder.write("t", b"a"), partition=0, offset=0)
    history.write_text("".join(lines))
    assert run(str(history)) == 0
    assert run(str(history), "--stuck-after", "8") == 1
    assert "stuck at 1.000 s, value 'c' (e): a send to t has no outcome: 8.0 s passed" in (
        capsys.readouterr().out
    )


def test_verdict_that_cannot_be_made_ends_with_2(
    run: Run, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(str(history), "--data", str(history.parent / "gone")) == 2
    assert "there is no directory" in capsys.readouterr().err
    history.write_text("{}\n")
    assert run(str(history)) == 2
    assert "history.jsonl, line 1: {}: it has no client" in capsys.readouterr().err
    history.write_text("")
    assert run(str(history)) == 2
    assert "there is no event of a client in" in capsys.readouterr().err
    history.write_text('{"client":"c","number":0,"event":"write","outcome":"ok","topic":"gone"}\n')
    assert run(str(history)) == 2
    assert "the topic gone, which does not exist" in capsys.readouterr().err


def test_verdict_without_logs_can_be_bad_but_not_good() -> None:
    lines: list[str] = []
    times = iter((1.0, 2.0, 9.0))
    recorder = Recorder("c", None, lines.append, lambda: next(times))
    recorder.ended(recorder.write("t", b"a"), partition=0, offset=0)
    without_logs = ReadLogs(unreadable=["t-0 has no leader"])
    with pytest.raises(VerdictError, match="t-0 has no leader"):
        judge(list(parse(lines)), without_logs, 5)
    recorder.write("t", b"b")
    assert judge(list(parse(lines)), without_logs, 5, now=20).counts == {"stuck": 1}
