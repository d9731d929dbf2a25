"""The states of a cluster that are computed from its ledgers."""

from __future__ import annotations

import json
from typing import Any

from minikafka.tools.console.observation.grid import EPOCH, ISR, LEADER, OFFLINE, REPLICAS
from minikafka.tools.console.replaying import states
from minikafka.tools.console.replaying.states import Replay


def line(time: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {"time": time, "broker": 1, "n": time, "kind": kind, "cause": "1-1", **fields}


def write(time: int, *operations: tuple[str, str, Any]) -> dict[str, Any]:
    rows = [
        {"op": op, "path": path, "data": None if data is None else json.dumps(data)}
        for op, path, data in operations
    ]
    return line(time, "write", outcome="ok", zxid=time, operations=rows)


def state(leader: int, epoch: int, isr: list[int]) -> dict[str, Any]:
    return {"leader": leader, "leader_epoch": epoch, "isr": isr}


T = "/brokers/topics/t"
STATE = f"{T}/partitions/0/state"
CREATED = write(
    20, ("create", T, {"partitions": {"0": [1, 2]}}), ("create", STATE, state(1, 0, [1, 2]))
)
LINES = [
    line(10, "election", outcome="won", controller=1, epoch=7),
    line(11, "event", event="BrokersChanged", brokers={"1": 5, "2": 6}),
    CREATED,
    line(30, "event", event="BrokersChanged", brokers={"1": 5}),
    line(31, "isr", topic="t", partition=0, isr=[1], leader_epoch=1, outcome="ok"),
    line(40, "broker", fact="stopped", controlled=True),
    line(50, "broker", fact="started"),
    write(60, ("set", STATE, state(-1, 2, [1]))),
    write(70, ("delete", T, None)),
]


def test_state_at_a_time_has_leader_and_isr_of_that_time() -> None:
    replay = Replay(LINES)
    assert (replay.from_ms, replay.to_ms) == (10, 70)
    row = replay.at(25).rows()["t-0"]
    assert (row[LEADER], row[EPOCH], row[REPLICAS], row[ISR]) == (1, 0, [1, 2], [1, 2])
    row = replay.at(35).rows()["t-0"]
    assert (row[LEADER], row[EPOCH], row[ISR], row[OFFLINE]) == (1, 1, [1], [2])
    assert replay.at(45).rows()["t-0"][LEADER] is None, "its broker has stopped"
    assert replay.at(55).rows()["t-0"][LEADER] == 1
    assert replay.at(65).rows()["t-0"][LEADER] is None
    assert replay.at(70).rows() == {}
    assert replay.at(25).rows()["t-0"][ISR] == [1, 2], "an earlier time again"
    assert replay.at(5).rows() == {}


def test_state_has_controller_and_brokers() -> None:
    replay = Replay(LINES)
    now = replay.at(35)
    assert (now.controller, now.controller_epoch) == (1, 7)
    brokers = {row["id"]: (row["state"], row["leaders"]) for row in now.broker_rows()}
    assert brokers == {1: ("running", 1), 2: ("down", 0)}


def test_states_are_the_same_whatever_is_kept(monkeypatch: Any) -> None:
    times = [5, *(one["time"] for one in LINES), 99]
    expected = [Replay(LINES).at(time).rows() for time in times]
    for keep in (1, 2, 3):
        monkeypatch.setattr(states, "_KEEP", keep)
        assert [Replay(LINES).at(time).rows() for time in times] == expected


def test_failed_write_changes_nothing() -> None:
    failed = write(25, ("set", STATE, state(2, 9, [2]))) | {"outcome": "fenced"}
    assert Replay([CREATED, failed]).at(99).rows()["t-0"][EPOCH] == 0


def test_marks_name_what_has_changed_and_are_bounded(monkeypatch: Any) -> None:
    marks = Replay(LINES).marks()
    assert [10, "controller", 1] in marks
    assert [31, "isr", "t-0"] in marks
    assert [40, "broker down", 1] in marks
    assert [60, "leader", "t-0"] in marks
    assert [70, "deleted", "t-0"] in marks
    monkeypatch.setattr(states, "MARKS_MAX", 3)
    assert len(Replay(LINES).marks()) <= 3


def test_leader_of_the_mode_leaders_is_that_which_moved_to_leading() -> None:
    move = {"topic": "t", "partition": 0, "fact": "move", "source": "", "text": ""}
    lines = [
        line(10, "state-change", **move, target="opening", epoch=1),
        line(11, "state-change", **move, target="leading", epoch=1),
        line(12, "state-change", **move, target="following", epoch=1) | {"broker": 2},
        line(13, "broker", fact="connection lost", to=1) | {"broker": 2},
    ]
    replay = Replay(lines)
    row = replay.at(12).rows()["t-0"]
    assert (row[LEADER], row[EPOCH], row[REPLICAS]) == (1, 1, [1, 2])
    assert replay.at(13).rows()["t-0"][LEADER] is None


def test_ledger_without_lines_has_no_time() -> None:
    replay = Replay([])
    assert (replay.from_ms, replay.to_ms, replay.marks()) == (None, None, [])
    assert replay.at(1).rows() == {}
