"""The command `status`: its JSON object, and its lines."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from rich.text import Text

from minikafka.base.model import TopicPartition
from minikafka.tools.cli.diagnosis.status import combined
from minikafka.tools.cli.diagnosis.status_view import PartitionRow, as_json, status_lines
from minikafka.tools.cli.terminal.console import plain_console, print_lines
from minikafka.tools.cluster.observation.causes import Cause
from minikafka.tools.cluster.observation.state import ObservedPartition, combine


def processes() -> dict[str, Any]:
    brokers = [
        {"id": i, "host": "127.0.0.1", "port": 9091 + i, "pid": i, "log_dir": "d"}
        for i in (1, 2, 3)
    ]
    brokers[2]["pid"] = None
    found = {"bootstrap": "b", "zookeeper": "z", "zookeeper_pid": 9, "brokers": brokers}
    return found | {"coordination": "controller", "zookeeper_kind": "embedded"}


@pytest.mark.row("J7")
def test_status_reports_each_broker_as_up_silent_or_down() -> None:
    replica = {
        "topic": "t",
        "partition": 0,
        "role": "follower",
        "leader": 3,
        "leader_epoch": 4,
        "isr": [1, 3],
        "replicas": [3, 1],
        "log_start_offset": 2,
        "log_end_offset": 5,
        "high_watermark": 5,
        "size": 70,
        "earliest_timestamp": 1000,
        "compaction": None,
    }
    answer = {
        "broker_epoch": 10,
        "is_controller": True,
        "controller_id": 1,
        "controller_epoch": 2,
        "live_brokers": [1],
        "replicas": [replica],
    }
    down = Cause("broker-down", "broker 3 is down", "start it", 3)
    states = {1: "up", 2: "silent", 3: "down"}
    shown = as_json(combined(processes(), combine({1: answer}), states, [down]))
    assert [b["state"] for b in shown["brokers"]] == ["up", "silent", "down"]
    assert shown["causes"] == [down.as_json()]
    assert [b["broker_epoch"] for b in shown["brokers"]] == [10, None, None]
    assert (shown["controller"], shown["controller_epoch"]) == (1, 2)
    assert shown["partitions"] == [
        {
            "topic": "t",
            "partition": 0,
            "leader": None,
            "leader_epoch": 4,
            "replicas": (3, 1),
            "isr": (1, 3),
            "available": False,
            "opening": None,
            "log_start_offset": None,
            "log_end_offset": None,
            "high_watermark": None,
            "last_stable_offset": None,
            "size": None,
            "earliest_timestamp": None,
            "compaction": None,
        }
    ]
    assert {"bootstrap", "zookeeper", "zookeeper_pid"} <= shown.keys()


def test_status_shows_backlogs_and_no_controller_in_the_mode_leaders() -> None:
    reported = {
        "broker_epoch": 1,
        "live_brokers": [1, 2],
        "replicas": [],
        "coordination": "leaders",
    }
    reported |= {"is_controller": False, "controller_id": 2, "controller_epoch": -1}
    cut_off = reported | {"session_state": "suspended", "backlog": {"3": 9}}
    fresh = reported | {"session_state": "connected", "backlog": {"1": 0, "2": 0, "3": 4}}
    states = {1: "no session", 2: "up", 3: "down"}
    found = processes() | {"coordination": "leaders"}
    shown = combined(found, combine({1: cut_off, 2: fresh}), states)
    assert [broker["backlog"] for broker in as_json(shown)["brokers"]] == [0, 0, 4]
    assert (shown.controller, shown.controller_epoch) == (None, None)
    lines = [line.plain for line in status_lines(shown, (), None)]
    assert "controller  none: the leaders of the partitions coordinate (mode leaders)" in lines


def test_status_marks_a_leader_that_does_not_serve_clients_yet() -> None:
    [_, line] = [line.plain for line in shown_rows(row(opening=(2,)))]
    assert "1 opening" in line


def test_status_shows_the_last_stable_offset_while_transactions_are_open() -> None:
    [_, line] = [line.plain for line in shown_rows(row(last_stable_offset=3))]
    assert " 5, stable 3 " in line
    [_, line] = [line.plain for line in shown_rows(row())]
    assert "stable" not in line


def test_status_names_a_controller_only_if_it_answers_as_the_active_one() -> None:
    answer = {"broker_epoch": 1, "is_controller": False, "controller_id": 1, "controller_epoch": 2}
    answer |= {"live_brokers": [1], "replicas": []}
    shown = combined(processes(), combine({1: answer}), {1: "no session", 2: "up", 3: "down"})
    assert (shown.controller, shown.controller_epoch) == (None, 2)


IN_SYNC = ObservedPartition(
    replicas=(1, 2),
    leader=1,
    leader_epoch=4,
    isr=(2, 1),
    log_start_offset=0,
    log_end_offset=5,
    high_watermark=5,
    size=70,
    earliest_timestamp=None,
    compaction=None,
    last_stable_offset=5,
)


def row(topic: str = "t", partition: int = 0, **more: Any) -> PartitionRow:
    """Return a partition that is in sync, but for the fields in `more`."""
    return PartitionRow(TopicPartition(topic, partition), replace(IN_SYNC, **more))


def shown_rows(
    *rows: PartitionRow, topics: tuple[str, ...] = (), width: int | None = None
) -> list[Text]:
    """Return the lines of `status` from the titles of the partitions on, with spaces at their ends removed."""
    shown = combined(processes(), combine({}), {1: "up", 2: "up", 3: "down"})
    lines = status_lines(shown._replace(partitions=rows), topics, width)
    first = next(at for at, line in enumerate(lines) if line.plain.startswith(("partition", "__")))
    return lines[first:]


BROKEN = {"dirty_ratio": None, "uncleanable": "its disk failed"}


def test_status_table_shows_size_age_and_dirty_ratio_of_each_partition() -> None:
    dirty = {"dirty_ratio": 0.25, "uncleanable": None}
    lines = shown_rows(
        row(partition=0, earliest_timestamp=1_000, compaction=dirty),
        row(partition=1, earliest_timestamp=2**62, compaction=BROKEN),
        row(partition=2),
    )
    words = [line.plain.split() for line in lines]
    assert words[0][-4:] == ["bytes", "from", "(UTC)", "dirty"]
    assert words[1][-4:] == ["70", "1970-01-01", "00:00:01", "25%"]
    assert words[2][-4:] == ["70", str(2**62), "none,", "uncleanable"]
    assert words[3][-2:] == ["70", "none"]


def test_partitions_of_an_internal_topic_are_one_line_below_those_of_users() -> None:
    rows = [
        row("__consumer_offsets", 0),
        row("__consumer_offsets", 1, isr=(1,)),
        row("__consumer_offsets", 2, isr=(1,), leader=None),
        row("__consumer_offsets", 3, compaction=BROKEN),
        row("__state", 0),
        row("mine", 0),
    ]
    lines = [line.plain for line in shown_rows(*rows)]
    assert lines[1].startswith("mine-0  ")
    assert lines[2:] == [
        "__consumer_offsets: 4 partitions, 1 without a leader that answers, 2 not in sync, 1 uncleanable"
        "; minikafka status __consumer_offsets lists them",
        "__state: 1 partition in sync",
    ]


def test_internal_topic_that_is_named_has_a_line_for_each_partition() -> None:
    rows = [row("__consumer_offsets", number) for number in range(3)]
    lines = shown_rows(*rows, topics=("__consumer_offsets",))
    assert [line.plain.split()[0] for line in lines[1:]] == [
        f"__consumer_offsets-{number}" for number in range(3)
    ]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_no_name_is_cut_and_no_line_is_too_wide_for_the_terminal(width: int) -> None:
    long = "n" * 249
    offsets = dict.fromkeys(("log_end_offset", "high_watermark", "last_stable_offset"), 10**9)
    big = {**offsets, "size": 10**13}
    rows = [row("events", number, isr=(1,), **big) for number in range(3)]
    lines = [line.plain for line in shown_rows(*rows, row(long), row("bücher.λ"), width=width)]
    assert "…" not in "".join(lines)
    assert [line.split()[0] for line in lines[1:4]] == ["events-0", "events-1", "events-2"]
    assert f"{long}-0" in lines
    assert all(len(line) <= width for line in lines if long not in line)
    hidden = lines[-1] if width < 100 else ""
    assert hidden.startswith(f"not shown in {width} columns: epoch" if width < 100 else "")
    assert lines[1].split()[1:4] == (["1", "1,2", "1"] if hidden else ["1", "4", "1,2"])


def test_status_in_a_pipe_has_one_line_with_all_columns_per_partition() -> None:
    lines = shown_rows(row("events"), row("n" * 249))
    assert [len(line.plain.split()) for line in lines[1:]] == [9, 9]
    assert len(lines[1].plain) < 100


class Output(StringIO):
    """Standard output that may be a terminal."""

    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize(
    ("is_terminal", "no_color", "has_colours"),
    [(True, "", True), (True, "1", False), (False, "", False)],
)
def test_states_have_colours_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, no_color: str, has_colours: bool
) -> None:
    for name, value in (("TERM", "xterm-256color"), ("NO_COLOR", no_color)):
        monkeypatch.setenv(name, value)
    output = Output(is_terminal)
    monkeypatch.setattr("sys.stdout", output)
    lines = shown_rows(row(isr=(1,)), row(partition=1, leader=None))
    print_lines(plain_console(), lines)
    assert [str(span.style) for line in lines for span in line.spans] == ["yellow", "bold red"]
    assert ("\x1b[33m1\x1b[0m" in output.getvalue()) is has_colours
    assert ("\x1b" in output.getvalue()) is has_colours


def test_log_directory_that_does_not_fit_has_a_line_of_its_own() -> None:
    found = processes()
    for broker in found["brokers"]:
        broker["log_dir"] = f"/data/ü/{broker['id']}/" + "d" * 60
    shown = combined(found, combine({}), {1: "up", 2: "up", 3: "down"})
    lines = [line.plain for line in status_lines(shown, (), 80)]
    assert lines[3:7] == [
        "broker  address         state  pid   epoch  queued",
        "    log directory",
        "1       127.0.0.1:9092  up     1     none   none",
        "    /data/ü/1/" + "d" * 60,
    ]
    assert all(len(line) <= 80 for line in lines)
    wide = [line.plain for line in status_lines(shown, (), 200)]
    assert wide[4].endswith("none    /data/ü/1/" + "d" * 60)
