"""The JSON object that `status --json` prints."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from minikafka.cli import status
from minikafka.cli.status import combined
from minikafka.cluster.causes import Cause
from minikafka.cluster.state import combine


def processes() -> dict[str, Any]:
    brokers = [
        {"id": i, "host": "127.0.0.1", "port": 9091 + i, "pid": i, "log_dir": "d"}
        for i in (1, 2, 3)
    ]
    brokers[2]["pid"] = None
    return {"bootstrap": "b", "zookeeper": "z", "zookeeper_pid": 9, "brokers": brokers}


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
    shown = combined(processes(), combine({1: answer}), states, [down])
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
            "replicas": [3, 1],
            "isr": [1, 3],
            "available": False,
            "log_start_offset": None,
            "log_end_offset": None,
            "high_watermark": None,
            "size": None,
            "earliest_timestamp": None,
            "compaction": None,
        }
    ]
    assert {"bootstrap", "zookeeper", "zookeeper_pid"} <= shown.keys()


def test_status_names_a_controller_only_if_it_answers_as_the_active_one() -> None:
    answer = {"broker_epoch": 1, "is_controller": False, "controller_id": 1, "controller_epoch": 2}
    answer |= {"live_brokers": [1], "replicas": []}
    shown = combined(processes(), combine({1: answer}), {1: "no session", 2: "up", 3: "down"})
    assert (shown["controller"], shown["controller_epoch"]) == (None, 2)


def test_status_table_shows_size_age_and_dirty_ratio_of_each_partition() -> None:
    row = {
        "topic": "t",
        "leader": 1,
        "leader_epoch": 4,
        "replicas": [1],
        "isr": [1],
        "log_end_offset": 5,
        "high_watermark": 5,
        "size": 70,
    }
    dirty = {"dirty_ratio": 0.25, "uncleanable": None}
    broken = {"dirty_ratio": None, "uncleanable": "its disk failed"}
    rows = [
        row | {"partition": 0, "earliest_timestamp": 1_000, "compaction": dirty},
        row | {"partition": 1, "earliest_timestamp": 2**62, "compaction": broken},
        row | {"partition": 2, "earliest_timestamp": None, "compaction": None},
    ]
    console = Console(file=StringIO(), width=200)
    console.print(status._partitions(rows))
    lines = [line.split() for line in console.file.getvalue().splitlines()]  # type: ignore[attr-defined]
    assert lines[0][-4:] == ["bytes", "from", "(UTC)", "dirty"]
    assert lines[1][-4:] == ["70", "1970-01-01", "00:00:01", "25%"]
    assert lines[2][-4:] == ["70", str(2**62), "none,", "uncleanable"]
    assert lines[3][-2:] == ["70", "none"]


def test_status_table_shows_internal_partitions_in_sync_only_as_a_count() -> None:
    row = {
        "topic": "__consumer_offsets",
        "leader": 1,
        "leader_epoch": 0,
        "replicas": [1, 2],
        "isr": [2, 1],
        "log_end_offset": 0,
        "high_watermark": 0,
        "size": 0,
        "earliest_timestamp": None,
        "compaction": None,
    }
    broken = {"dirty_ratio": None, "uncleanable": "its disk failed"}
    rows = [
        row | {"partition": 0},
        row | {"partition": 1, "isr": [1]},
        row | {"partition": 2},
        row | {"partition": 3, "compaction": broken},
        row | {"partition": 0, "topic": "mine"},
    ]
    console = Console(file=StringIO(), width=200)
    console.print(status._partitions(rows))
    lines = [line.strip() for line in console.file.getvalue().splitlines()[1:]]  # type: ignore[attr-defined]
    assert [line.split("  ")[0] for line in lines] == [
        "__consumer_offsets-1",
        "__consumer_offsets-3",
        "mine-0",
        "__consumer_offsets: 2 partitions in sync",
    ]
