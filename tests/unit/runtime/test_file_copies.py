"""Copies of files: holes, times and modes, and what a failed copy leaves."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from minikafka.runtime import file_copies
from minikafka.runtime.file_copies import copy_file, unshare


def test_copy_has_content_mode_and_time_of_its_source(tmp_path: Path) -> None:
    source = tmp_path / "a"
    source.write_bytes(b"x" * 100_000)
    source.chmod(0o640)
    os.utime(source, ns=(1, 1_700_000_000_123_456_789))
    assert copy_file(str(source), str(tmp_path / "b")) == 100_000
    copied = (tmp_path / "b").stat()
    assert (tmp_path / "b").read_bytes() == source.read_bytes()
    assert (copied.st_mode & 0o777, copied.st_mtime_ns) == (0o640, 1_700_000_000_123_456_789)


def test_copy_keeps_the_holes_of_a_preallocated_file(tmp_path: Path) -> None:
    source = tmp_path / "log.1"
    with source.open("wb") as file:
        file.write(b"head")
        file.seek(32 << 20)
        file.write(b"tail")
        file.truncate(64 << 20)
    copy_file(str(source), str(tmp_path / "copy"))
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    assert (tmp_path / "copy").stat().st_blocks * 512 < 1 << 20


def test_copy_of_the_first_bytes_ends_there(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    assert copy_file(str(tmp_path / "a"), str(tmp_path / "b"), 4) == 4
    assert (tmp_path / "b").read_bytes() == b"0123"


def test_failed_copy_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").write_bytes(b"x")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "sendfile", full)
    monkeypatch.setattr(file_copies.fcntl, "ioctl", full)
    with pytest.raises(OSError, match="No space"):
        copy_file(str(tmp_path / "a"), str(tmp_path / "b"))
    assert not (tmp_path / "b").exists()


def test_copy_refuses_a_target_that_exists(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_bytes(name.encode())
    with pytest.raises(FileExistsError):
        copy_file(str(tmp_path / "a"), str(tmp_path / "b"))
    assert (tmp_path / "b").read_bytes() == b"b"


def test_descriptor_of_a_renamed_file_gets_the_copy_at_the_new_name(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"kept")
    os.link(tmp_path / "a", tmp_path / "snapshot")
    (tmp_path / "a").rename(tmp_path / "moved")
    unshare(descriptor, 3)
    os.pwrite(descriptor, b"new", 0)
    os.close(descriptor)
    assert (tmp_path / "moved").read_bytes() == b"new"
    assert (tmp_path / "snapshot").read_bytes() == b"kept"


def test_descriptor_without_a_name_is_refused_while_the_file_has_another_name(
    tmp_path: Path,
) -> None:
    descriptor = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    os.link(tmp_path / "a", tmp_path / "b")
    os.link(tmp_path / "a", tmp_path / "c")
    (tmp_path / "a").unlink()
    with pytest.raises(FileNotFoundError):
        unshare(descriptor, 0)
    os.close(descriptor)
