"""The command `scripts/isolation` on histories and log directories in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.storage.replica_logs import ReplicaLogs, batch

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import Recorder
from minikafka.storage.log import checkpoints

ROOT = Path(__file__).parents[3]
TP = TopicPartition("t", 0)


@pytest.fixture
def paths(tmp_path: Path) -> list[str]:
    """The arguments for two replicas with the record `a`, and a history in which it was acknowledged."""
    logs = ReplicaLogs(tmp_path / "data", [1, 2])
    logs.append(TP, batch([b"a"], 0))
    for broker in (1, 2):
        logs.checkpoint(broker, checkpoints.HIGH_WATERMARKS, {TP: 1})
    lines: list[str] = []
    recorder = Recorder("c", None, lines.append, lambda: 0.0)
    recorder.ended(recorder.write("t", b"a"), partition=0, offset=0)
    (tmp_path / "history.jsonl").write_text("".join(lines))
    return ["--replicas", str(tmp_path / "data"), "--history", str(tmp_path / "history.jsonl")]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    import isolation_job

    return isolation_job.main


def test_logs_with_all_acknowledged_records_end_with_0(run, paths, capsys):
    assert run(paths) == 0
    assert capsys.readouterr().out.endswith(" 0 interleaved: no anomaly\n")


def test_lost_record_ends_with_1_and_is_shown(run, paths, capsys):
    with Path(paths[-1]).open("a") as history:
        recorder = Recorder("d", None, history.write, lambda: 0.0)
        recorder.ended(recorder.write("t", b"b"), partition=0, offset=1)
    assert run(paths) == 1
    assert capsys.readouterr().out.startswith("lost at t-0 offset 1 of d: it is in no log\n")


def test_plain_lines_are_read(run, paths, capsys):
    plain = {"producer": "p", "sequence": 0, "topic": "t", "outcome": "ok", "value": "a"}
    history = Path(paths[-1])
    history.write_text(json.dumps({**plain, "partition": 0, "offset": 0}) + "\n")
    assert run(paths) == 0
    history.write_text(json.dumps({**plain, "partition": 0, "offset": 5, "value": "b"}) + "\n")
    assert run(paths) == 1
    assert "lost at t-0 offset 5 of p" in capsys.readouterr().out


def test_wrong_directory_and_wrong_history_end_with_2(run, paths, capsys, tmp_path):
    assert run(["--replicas", str(tmp_path / "gone"), *paths[2:]]) == 2
    Path(paths[-1]).write_text("{}\n")
    assert run(paths) == 2
    assert "history.jsonl, line 1: {}: it has no client" in capsys.readouterr().err
