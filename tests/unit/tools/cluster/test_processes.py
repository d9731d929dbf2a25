"""Processes are identified by pid and start time."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.runtime.clock import SystemClock
from minikafka.tools.cluster import processes
from minikafka.tools.cluster.processes import ProcessId

SLEEP = "import time; print('up', flush=True); time.sleep(600)"
IGNORES_SIGTERM = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEP}"


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    children: list[subprocess.Popen[bytes]] = []
    yield children
    for child in children:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def start(children: list[subprocess.Popen[bytes]], code: str = SLEEP) -> ProcessId:
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    children.append(child)
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    process = processes.identify(child.pid)
    assert process is not None
    return process


async def test_process_is_identified_until_it_ends(
    started: list[subprocess.Popen[bytes]],
) -> None:
    process = start(started)
    assert processes.is_alive(process)
    await processes.kill(process, SystemClock())
    assert not processes.is_alive(process)
    assert processes.identify(process.pid) is None
    assert not processes.send_signal(process, signal.SIGTERM)


def test_reused_pid_is_recognized_as_another_process(
    started: list[subprocess.Popen[bytes]],
) -> None:
    process = start(started)
    former = process._replace(started=process.started - 1)
    assert not processes.is_alive(former)
    assert not processes.send_signal(former, signal.SIGKILL)
    assert processes.is_alive(process)


def test_ended_process_that_is_not_reaped_is_not_alive(
    started: list[subprocess.Popen[bytes]],
) -> None:
    process = start(started)
    started[0].kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert Path(f"/proc/{process.pid}").exists()
    assert not processes.is_alive(process)


async def test_paused_process_is_alive_and_can_be_ended(
    started: list[subprocess.Popen[bytes]],
) -> None:
    process = start(started)
    processes.send_signal(process, signal.SIGSTOP)
    while not processes.is_paused(process):  # noqa: ASYNC110 - the kernel announces nothing
        await asyncio.sleep(0.001)
    assert processes.is_alive(process)
    await processes.end(process, SystemClock())
    assert not processes.is_alive(process)


async def test_process_that_ignores_sigterm_is_killed(
    started: list[subprocess.Popen[bytes]],
) -> None:
    process = start(started, IGNORES_SIGTERM)
    await processes.end(process, SystemClock(), grace_ms=50)
    assert not processes.is_alive(process)


def test_find_broker_finds_a_process_by_its_config_file(
    started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    file = tmp_path / "broker-1.toml"
    code = f"import sys; {SLEEP}"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "broker", "--config", "broker-1.toml"],
        stdout=subprocess.PIPE,
        cwd=tmp_path,
    )
    started.append(child)
    assert child.stdout is not None
    child.stdout.readline()
    assert processes.find_broker(file) == processes.identify(child.pid)
    assert processes.find_broker(tmp_path / "broker-2.toml") is None


def start_tied(children: list[subprocess.Popen[bytes]], code: str) -> ProcessId:
    """Start a parent process that starts a child and prints the child's pid; return the child."""
    environment = {**os.environ, "PYTHONPATH": str(Path(processes.__file__).parents[3])}
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment)
    children.append(parent)
    assert parent.stdout is not None
    tied = processes.identify(int(parent.stdout.readline()))
    assert tied is not None
    return tied


async def test_process_dies_with_its_parent(
    started: list[subprocess.Popen[bytes]],
) -> None:
    child = (
        "from minikafka.runtime.spawning import die_with; import os, sys, time; "
        "die_with(int(sys.argv[1])); print(os.getpid(), flush=True); time.sleep(600)"
    )
    parent = (
        "import os, subprocess, sys, time; subprocess.Popen("
        f"[sys.executable, '-c', {child!r}, str(os.getpid())]); time.sleep(600)"
    )
    tied = start_tied(started, parent)
    started[0].kill()
    assert await processes.wait_until_gone(tied, SystemClock(), 30_000)


async def test_spawned_minikafka_command_writes_its_output_to_the_log_file(tmp_path: Path) -> None:
    log = tmp_path / "out.log"
    process = processes.spawn(["--version"], log)
    assert await processes.wait_until_gone(process, SystemClock(), 30_000)
    assert "version" in log.read_text() or "not installed" in log.read_text()


def test_spawned_broker_keeps_the_address_randomization_of_its_parent(tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    os.mkfifo(config)  # the broker blocks while it reads its configuration
    spawned = processes.spawn(["broker", "--config", str(config)], tmp_path / "out.log")
    try:
        own = Path("/proc/thread-self/personality").read_text()
        assert Path(f"/proc/{spawned.pid}/personality").read_text() == own
    finally:
        processes.send_signal(spawned, signal.SIGKILL)
        os.waitpid(spawned.pid, 0)
