"""Brokers of the clusters in a test's process that are forked (`fork_server.py`) instead of started anew.

A new interpreter and its imports take 0.3 of the 0.4 s of processor time of a broker's start. A forked broker is a
process like any other: it is killed, paused and stopped alone, and ends with the process of the test. Its command line
in /proc is that of the fork server. Brokers that commands start are new interpreters, as those of users.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from support.commands.forks import BROKER, fork, fork_server_of

from minikafka.runtime.spawning import start_child
from minikafka.tools.cluster import processes

FORKED = ("-m", "minikafka", BROKER)
PARENT = "--parent"
TIERS = ("cluster", "clients", "spark")
"""The marks of the tests on clusters (tests/conftest.py)."""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Fork the brokers that `LocalCluster` starts for tests on clusters. Other tests may examine its command lines."""
    is_on_cluster = any(map(item.get_closest_marker, TIERS))
    processes.start_child = start_or_fork if is_on_cluster else start_child  # type: ignore[attr-defined]


def start_or_fork(command: Sequence[str], **options: Any) -> Any:
    """Fork the process of a broker; start any other command. Return an object with the pid."""
    if tuple(command[1:4]) != FORKED:
        return start_child(command, **options)
    return SimpleNamespace(pid=fork_broker(command[3:], options["stdout"], options["env"]))


def fork_broker(arguments: Sequence[str], output: IO[bytes], environment: Mapping[str, str]) -> int:
    """Fork a broker, and return its pid. It ends with the server, as the server ends with this process."""
    server = fork_server_of(BROKER)
    words = list(arguments)
    if PARENT in words:
        words[words.index(PARENT) + 1] = str(server.pid)
    with open("/dev/null", "rb") as nothing:
        streams = [nothing.fileno(), output.fileno(), output.fileno()]
        forked = fork(
            server, words, streams, directory=Path.cwd(), environment=environment, session=True
        )
    forked.reply.close()
    return forked.pid
