"""Storage on a real disk: partial writes, a full disk, file modes."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from minikafka.base.errors import StorageFailed
from minikafka.runtime.storage import DiskStorage


def test_partial_write_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev
    monkeypatch.setattr(
        os, "pwritev", lambda fd, slices, position: real(fd, [bytes(slices[0])[:3]], position)
    )
    file = DiskStorage().open(str(tmp_path / "a"), create=True)
    assert file.pwritev([b"01234", b"56789"], 5) == 10
    assert file.pread(10, 5) == b"0123456789"
    file.close()


def test_partial_write_of_one_slice_is_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda fd, data, position: real(fd, bytes(data)[:3], position)
    )
    file = DiskStorage().open(str(tmp_path / "a"), create=True)
    assert file.pwritev([b"0123456789"], 5) == 10
    assert file.pread(10, 5) == b"0123456789"
    file.close()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize(("call", "slices"), [("pwrite", [b"x"]), ("pwritev", [b"x", b"y"])])
def test_disk_error_contains_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, slices: list[bytes], number: int
) -> None:
    def refuse(fd: int, data: object, position: int) -> int:
        raise OSError(number, os.strerror(number))

    file = DiskStorage().open(str(tmp_path / "a"), create=True)
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(StorageFailed) as failure:
        file.pwritev(slices, 0)
    assert failure.value.cause.errno == number
    assert failure.value.path == str(tmp_path / "a")
    file.close()


def test_write_to_a_full_disk_raises_storage_failed(tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    file = DiskStorage().open(str(full))
    with pytest.raises(StorageFailed) as failure:
        file.pwritev([b"x" * 100], 0)
    assert failure.value.cause.errno == errno.ENOSPC
    file.close()


def test_failed_replacement_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, "I/O error")

    path = str(tmp_path / "a")
    DiskStorage().write_atomically(path, b"old")
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageFailed):
        DiskStorage().write_atomically(path, b"new")
    assert DiskStorage().read(path) == b"old"


def test_renamed_and_replaced_files_have_durable_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, synced = os.fsync, []

    def note(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    storage, (old, new) = DiskStorage(), (tmp_path / "old", tmp_path / "new")
    storage.write_atomically(str(old), b"data")
    directory, file = tmp_path.stat().st_ino, old.stat().st_ino
    assert synced == [file, directory], "the content first"
    storage.rename(str(old), str(new))
    assert synced == [file, directory, directory]


def test_new_directories_have_durable_names_from_the_top(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, synced = os.fsync, []

    def note(fd: int) -> None:
        synced.append(os.fstat(fd).st_ino)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", note)
    path = tmp_path / "a" / "b" / "c"
    assert DiskStorage().make_directories(str(path))
    assert synced == [place.stat().st_ino for place in (tmp_path, path.parent.parent, path.parent)]
    assert not DiskStorage().make_directories(str(path))
    assert DiskStorage().make_directories(str(path / "d"), sync=False)
    assert len(synced) == 3


def test_directory_whose_name_cannot_be_made_durable_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int) -> None:
        raise OSError(errno.EIO, "I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        with pytest.raises(StorageFailed):
            DiskStorage().make_directories(str(tmp_path / "a"))
    assert DiskStorage().make_directories(str(tmp_path / "a")), "a second attempt makes it durable"


def test_copy_of_a_directory_is_another_place(tmp_path: Path) -> None:
    first, copy = tmp_path / "a", tmp_path / "b"
    first.mkdir()
    shutil.copytree(first, copy)
    before = DiskStorage().place(str(first))
    assert before != DiskStorage().place(str(copy))
    first.rename(tmp_path / "c")
    assert DiskStorage().place(str(tmp_path / "c")) == before
