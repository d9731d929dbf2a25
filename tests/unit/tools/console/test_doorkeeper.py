"""The program that waits for the first visitor of a console."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest

from minikafka.tools.cluster.processes import identify
from minikafka.tools.console import doorkeeper
from minikafka.tools.console.opening import listen


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doorkeeper, "POLL_S", 0.02)
    monkeypatch.setattr(doorkeeper, "GRACE_S", 0.1)


def write(folder: Path, name: str, pid: int, started: int = 1) -> None:
    value = {"port": 1, "process": {"pid": pid, "started": started}}
    (folder / name).write_text(json.dumps(value, indent=1))


def test_visitor_wakes_the_doorkeeper(tmp_path: Path) -> None:
    own = identify(os.getpid())
    assert own is not None
    write(tmp_path, "console.json", own.pid)
    write(tmp_path, "cluster.json", own.pid, own.started)
    with listen(0) as listening:
        visitor = threading.Timer(
            0.3, lambda: socket.create_connection(listening.getsockname()).close()
        )
        visitor.start()
        assert doorkeeper.wait(listening.fileno(), str(tmp_path)), "the cluster lives all the time"
        visitor.join()


def test_doorkeeper_ends_when_another_console_is_recorded(tmp_path: Path) -> None:
    own = identify(os.getpid())
    assert own is not None
    write(tmp_path, "cluster.json", own.pid, own.started)
    with listen(0) as listening:
        assert not doorkeeper.wait(listening.fileno(), str(tmp_path))
        write(tmp_path, "console.json", own.pid + 1)
        assert not doorkeeper.wait(listening.fileno(), str(tmp_path))


def test_doorkeeper_ends_when_the_cluster_has_had_no_process_for_a_while(tmp_path: Path) -> None:
    write(tmp_path, "console.json", os.getpid())
    write(tmp_path, "cluster.json", os.getpid(), started=1)
    with listen(0) as listening:
        assert not doorkeeper.wait(listening.fileno(), str(tmp_path))
