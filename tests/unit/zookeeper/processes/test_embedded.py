"""The command that starts the embedded ZooKeeper server as a child process."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from minikafka.runtime.clock import SystemClock
from minikafka.zookeeper.processes.child import EmbeddedZooKeeper


@pytest.mark.parametrize("is_attached", [True, False])
def test_only_an_attached_embedded_server_ends_with_its_parent(
    tmp_path: Path, is_attached: bool
) -> None:
    server = EmbeddedZooKeeper(tmp_path, 2181, clock=SystemClock(), attached=is_attached)
    command = server.command()
    assert command[:4] == [sys.executable, "-m", "minikafka", "zookeeper"]
    assert (f"--parent {os.getpid()}" in " ".join(command)) == is_attached


def test_embedded_server_uses_the_data_directory_of_apache_zookeeper(tmp_path: Path) -> None:
    command = EmbeddedZooKeeper(tmp_path, 2181, clock=SystemClock()).command()
    assert command[command.index("--data") + 1] == str(tmp_path / "data")
