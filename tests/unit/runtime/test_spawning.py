from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from minikafka.runtime.spawning import dying_with, start_child

ECHO = """
import os, sys
from minikafka.runtime.spawning import die_with
die_with(int(sys.argv[1]))
print("ready", flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
"""


def start_echo(parent: int) -> subprocess.Popen[bytes]:
    """Start a process that dies with its parent and repeats its input; wait until it is ready."""
    command = [sys.executable, "-c", ECHO, str(parent)]
    child = start_child(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def echo(child: subprocess.Popen[bytes], text: bytes) -> bytes:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(text)
    child.stdin.flush()
    return child.stdout.readline()


def run_in_thread(work: object) -> None:
    """Run `work` in a thread, and return when the kernel has ended this thread."""
    thread = threading.Thread(target=work)  # type: ignore[arg-type]
    thread.start()
    thread.join()
    task = Path(f"/proc/self/task/{thread.native_id}")
    while task.exists():  # `join` returns slightly earlier
        threading.Event().wait(0.001)


def test_child_with_a_parent_death_signal_outlives_the_thread_that_asked_for_it() -> None:
    children: list[subprocess.Popen[bytes]] = []
    run_in_thread(lambda: children.append(start_echo(os.getpid())))
    with children[0] as child:
        try:
            assert echo(child, b"alive\n") == b"alive\n"
        finally:
            child.kill()


def test_child_that_cannot_start_raises_the_error_of_popen() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        start_child(["/no-such-program"])
    with start_child(["true"]) as child:
        assert child.wait() == 0


FORK = """
import os
from minikafka.runtime.spawning import start_child
start_child(["true"]).wait()
if os.fork() == 0:
    os._exit(start_child(["true"]).wait())
print(os.wait()[1])
"""


def test_forked_process_starts_children_in_a_thread_of_its_own() -> None:
    forking = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        FORK,
    ]  # newer Python warns of forks with threads
    with start_child(forking, stdout=subprocess.PIPE) as child:
        try:
            output, _ = child.communicate(timeout=60)
        finally:
            child.kill()
    assert output == b"0\n"


PARENT = """
import os, sys
from minikafka.runtime.spawning import dying_with, start_child
command = dying_with(os.getpid(), ["sh", "-c", "echo ready; exec cat"])
start_child(command, stdin=sys.stdin.fileno(), stdout=sys.stdout.fileno()).wait()
"""


def test_command_that_dies_with_its_parent_ends_when_the_parent_is_killed() -> None:
    with start_child(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"ready\n"
        assert echo(parent, b"alive\n") == b"alive\n"
        parent.kill()
        assert (
            parent.stdout.read() == b""
        )  # the command has closed its end, although its input is open


def test_command_does_not_start_if_its_parent_has_ended() -> None:
    command = dying_with(os.getpid() + 1, ["echo", "started"])
    with start_child(command, stdout=subprocess.PIPE) as child:
        assert child.communicate(timeout=60)[0] == b""
