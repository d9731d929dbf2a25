"""Forked children: what they do, what they leave alone, and how they end."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from minikafka.base.errors import MinikafkaError
from minikafka.runtime.forking import in_child


class Blocked:
    """A function that writes its process id, waits until `release`, and then writes its scheduling policy."""

    def __init__(self, directory: Path) -> None:
        self.started = directory / "started"
        self.gate = directory / "gate"
        self.result = directory / "result"
        os.mkfifo(self.started)
        os.mkfifo(self.gate)

    def __call__(self) -> None:
        self.started.write_text(str(os.getpid()))
        self.gate.read_text()
        self.result.write_text(str(os.sched_getscheduler(0)))

    async def pid(self) -> int:
        """Wait until the function runs."""
        return int(await asyncio.to_thread(self.started.read_text))

    async def release(self) -> None:
        await asyncio.to_thread(self.gate.write_text, "")


async def test_parent_continues_while_the_child_works(tmp_path: Path) -> None:
    function = Blocked(tmp_path)
    child = asyncio.ensure_future(in_child(function))
    assert await function.pid() != os.getpid()
    assert not child.done()
    await function.release()
    assert await child is True
    assert int(function.result.read_text()) == os.SCHED_IDLE


async def test_event_loop_runs_while_a_child_ends_slowly(tmp_path: Path) -> None:
    function = Blocked(tmp_path)

    def close_then_block() -> None:
        os.closerange(3, 1_000)  # for the parent, this is the first sign of the child's end
        function()

    child = asyncio.ensure_future(in_child(close_then_block))
    await function.pid()
    await asyncio.sleep(0.01)
    assert not child.done()
    await function.release()
    assert await child is True


async def test_child_runs_where_the_idle_class_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    assert await in_child(lambda: None) is True


def _fail() -> None:
    raise MinikafkaError("the disk is full")


def _crash() -> None:
    raise KeyError("surprise")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("function", "printed"),
    [(_fail, "the disk is full\n"), (_crash, "KeyError: 'surprise'\n"), (_die, "")],
)
async def test_child_that_fails_is_reported(
    function: Callable[[], None], printed: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert await in_child(function) is False
    assert capfd.readouterr().err.endswith(printed)


async def test_child_holds_no_socket_of_its_parent(tmp_path: Path) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(listener.getsockname())
    accepted, _ = listener.accept()
    function = Blocked(tmp_path)
    child = asyncio.ensure_future(in_child(function))
    await function.pid()
    accepted.sendall(b"still open")
    accepted.close()
    listener.close()
    assert client.recv(100) == b"still open"
    client.settimeout(10)
    assert client.recv(100) == b"", "the child keeps the connection open"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(client.getpeername())
    client.close()
    await function.release()
    assert await child


async def test_child_is_killed_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    function = Blocked(tmp_path)
    child = asyncio.ensure_future(in_child(function))
    pid = await function.pid()
    child.cancel()
    with pytest.raises(asyncio.CancelledError):
        await child
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_descriptors_are_closed_after_each_child() -> None:
    before = os.listdir("/proc/self/fd")
    assert await in_child(lambda: None)
    assert os.listdir("/proc/self/fd") == before
