"""The command `logs`."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from minikafka.tools.cli.processes.logs import POLL_MS, LogReader, logs
from minikafka.tools.cluster.directory import (
    BrokerRecord,
    ClusterDirectory,
    ClusterError,
    ClusterRecord,
)

BROKERS = (BrokerRecord(1, 9092, 1), BrokerRecord(2, 9093, 2))


@pytest.fixture
def directory(tmp_path: Path) -> ClusterDirectory:
    found = ClusterDirectory(tmp_path)
    found.write(ClusterRecord(BROKERS, "127.0.0.1:1"))
    return found


def call(directory: ClusterDirectory, *arguments: str) -> Result:
    return CliRunner().invoke(logs, [*arguments, "--data", str(directory.path)])


def write(directory: ClusterDirectory, name: str, *lines: str) -> None:
    with directory.output(name).open("a") as file:
        file.writelines(lines)


def test_log_of_one_broker_is_printed_unchanged(directory: ClusterDirectory) -> None:
    write(directory, "broker-1", "2026-01-01 00:00:00,000 INFO a\n", "[x] {y}\n", "last\n")
    write(directory, "broker-2", "other\n")
    done = call(directory, "1")
    assert (done.exit_code, done.stdout) == (
        0,
        "2026-01-01 00:00:00,000 INFO a\n[x] {y}\nlast\n",
    )


def test_logs_of_all_processes_are_in_order_of_time(directory: ClusterDirectory) -> None:
    write(
        directory,
        "broker-1",
        "2026-01-01 00:00:01,000 ERROR a\n",
        "  more about a\n",
        "2026-01-01 00:00:03,000 INFO c\n",
    )
    write(directory, "broker-2", "2026-01-01 00:00:02,000 INFO b\n")
    write(directory, "zookeeper", "2025-12-31 23:59:59,999 [main] INFO z\n")
    assert call(directory).stdout.splitlines() == [
        "zookeeper | 2025-12-31 23:59:59,999 [main] INFO z",
        "broker-1 | 2026-01-01 00:00:01,000 ERROR a",
        "broker-1 |   more about a",
        "broker-2 | 2026-01-01 00:00:02,000 INFO b",
        "broker-1 | 2026-01-01 00:00:03,000 INFO c",
    ]


def test_logs_are_limited_to_the_last_lines_and_to_those_since_a_time(
    directory: ClusterDirectory,
) -> None:
    write(
        directory,
        "broker-1",
        "before any time\n",
        "2026-01-01 00:00:01,000 ERROR a\n",
        "  more about a\n",
        "2026-01-01 00:00:03,000 INFO c\n",
    )
    write(directory, "broker-2", "2026-01-01 00:00:02,000 INFO b\n")
    last = [
        "broker-2 | 2026-01-01 00:00:02,000 INFO b",
        "broker-1 | 2026-01-01 00:00:03,000 INFO c",
    ]
    assert call(directory, "--tail", "2").stdout.splitlines() == last
    assert call(directory, "--since", "2026-01-01T00:00:01.500").stdout.splitlines() == last
    assert call(directory, "--since", "2026-01-01 00:00:02", "--tail", "1").stdout.splitlines() == [
        last[1]
    ]
    since = call(directory, "1", "--since", "2026-01-01 00:00:01").stdout.splitlines()
    assert since[:2] == ["2026-01-01 00:00:01,000 ERROR a", "  more about a"]
    assert call(directory, "--since", "10m").stdout == ""
    assert call(directory, "--tail", "0").exit_code == 0
    for wrong in ("soon", "10", "-1h", "10w", "0001-01-01"):
        assert call(directory, "--since", wrong).exit_code == 2 or wrong == "0001-01-01"


def test_logs_since_a_duration_ago_are_in_local_time(directory: ClusterDirectory) -> None:
    now = datetime.now().astimezone()
    for minutes in (20, 5):
        at = now - timedelta(minutes=minutes)
        write(directory, "broker-1", f"{at:%Y-%m-%d %H:%M:%S},000 INFO {minutes} min ago\n")
    assert call(directory, "1", "--since", "10m").stdout.split(" INFO ")[1:] == ["5 min ago\n"]


def test_logs_with_option_follow_prints_complete_lines_also_of_added_brokers(
    directory: ClusterDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(directory, "broker-1", "old\n", "unfin")
    three = BrokerRecord(3, 9094, 3)
    steps = [
        lambda: write(directory, "broker-1", "ished\n", "new\n"),
        lambda: directory.write(ClusterRecord((*BROKERS, three), "127.0.0.1:1")),
        lambda: write(directory, "broker-3", "third\n"),
        lambda: os.truncate(directory.logs / "broker-1.log", 0),  # by logrotate
        lambda: write(directory, "broker-1", "fourth\n"),
    ]

    class Clock:
        async def sleep(self, ms: int) -> None:
            assert ms == POLL_MS
            if not steps:
                raise KeyboardInterrupt
            steps.pop(0)()

    monkeypatch.setattr("minikafka.tools.cli.processes.logs.SystemClock", Clock)
    assert call(directory, "-f").stdout.splitlines() == [
        "broker-1 | old",
        "broker-1 | unfinished",
        "broker-1 | new",
        "broker-3 | third",
        "broker-1 | fourth",
    ]


def test_logs_error_names_the_missing_log(directory: ClusterDirectory, tmp_path: Path) -> None:
    assert "broker 1 has logged nothing in" in call(directory, "1").stderr
    assert "there is no log in" in call(directory).stderr
    with pytest.raises(ClusterError, match="no broker 9"):
        LogReader(directory, 9).logs()
    with pytest.raises(ClusterError, match="there is no cluster"):
        LogReader(ClusterDirectory(tmp_path / "none"), None).logs()
