"""The moment at which all processes of a cluster stand, and what continues after it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster.processes import ProcessId, identify, is_paused, send_signal
from minikafka.tools.cluster.time_and_state.stopping import _wait_until_stopped, all_stopped

KILLED = """
import asyncio, os, signal, sys
from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster.processes import identify
from minikafka.tools.cluster.time_and_state.stopping import all_stopped

async def main():
    async with all_stopped([identify(int(sys.argv[1]))], None, SystemClock()):
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.fixture
def processes() -> Iterator[list[ProcessId]]:
    started = [subprocess.Popen(["sleep", "60"]) for _ in range(3)]
    found = [identify(one.pid) for one in started]
    yield [one for one in found if one is not None]
    for one in started:
        one.kill()
        one.wait()


async def test_processes_stand_in_the_block_and_paused_ones_stay_paused(
    processes: list[ProcessId],
) -> None:
    *brokers, zookeeper = processes
    send_signal(brokers[1], 19)
    await _wait_until_stopped(brokers[1], SystemClock())
    async with all_stopped(brokers, zookeeper, SystemClock()):
        assert all(map(is_paused, processes))
    assert [is_paused(one) for one in processes] == [False, True, False]
    with pytest.raises(ValueError, match="in the block"):
        async with all_stopped(brokers, None, SystemClock()):
            raise ValueError("in the block")
    assert [is_paused(one) for one in processes] == [False, True, False]


def test_processes_continue_when_the_one_that_stopped_them_is_killed(
    processes: list[ProcessId],
) -> None:
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(processes[0].pid)],
        cwd=Path(__file__).parents[5],
        check=False,
    )
    assert killed.returncode == -9
    deadline = time.monotonic() + 30
    while is_paused(processes[0]) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_paused(processes[0])
