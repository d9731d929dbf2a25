"""Lock files: who can open them, and who holds them."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from minikafka.runtime.locks import close_to_others, holder_of, open_lock, try_lock
from minikafka.runtime.storage import DiskStorage

HOLD = """
import fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.flock(fd, fcntl.LOCK_SH)
if len(sys.argv) > 2 and os.fork():
    os._exit(0)
print("held", os.getpid(), flush=True)
sys.stdin.read()
"""


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("before", [None, 0o644, 0o666, 0o600])
def test_open_lock_closes_the_file_to_other_users(tmp_path: Path, before: int | None) -> None:
    file = tmp_path / "lock"
    if before is not None:
        file.touch()
        file.chmod(before)
    os.close(open_lock(str(file)))
    assert mode(file) == 0o600


def test_close_to_others_leaves_a_directory_of_many_users_alone(tmp_path: Path) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    for path, before in ((own, 0o755), (shared, 0o1777)):
        path.mkdir()
        path.chmod(before)
        close_to_others(path)
    assert (mode(own), mode(shared)) == (0o700, 0o1777)


def test_storage_closes_the_lock_and_its_directory_to_other_users(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    file = tmp_path / ".lock"
    file.touch(0o644)
    lock = DiskStorage().lock(str(file))
    assert lock is not None
    assert (mode(file), mode(tmp_path)) == (0o600, 0o700)
    lock.close()


@pytest.mark.parametrize("passed_on", [(), ("passed on",)])
def test_holder_of_names_the_process_that_has_locked_the_file(
    tmp_path: Path, passed_on: tuple[str, ...]
) -> None:
    file = tmp_path / "lock"
    file.touch()
    command = [sys.executable, "-c", HOLD, str(file), *passed_on]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        pid = process.stdout.readline().split()[1]
        if passed_on:
            process.wait()
        descriptor = open_lock(str(file))
        assert not try_lock(descriptor)
        assert holder_of(file).startswith(f"process {pid} (")
        assert DiskStorage().lock(str(file)) is None
        os.close(descriptor)


def test_holder_of_a_lock_that_nobody_holds_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    assert holder_of(tmp_path / "lock") == "another process"
    assert holder_of(tmp_path / "missing") == "another process"
