"""The Storage port, tested on this machine's disk and on the in-memory stand-in."""

from __future__ import annotations

import stat
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from minikafka.base.errors import StorageFailed
from minikafka.base.ports import Storage
from minikafka.runtime.storage import DiskStorage
from minikafka.simulation.storage import MemoryStorage


class Place(NamedTuple):
    storage: Storage
    root: str

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    storage: Storage = DiskStorage() if request.param == "disk" else MemoryStorage()
    root = str(tmp_path)
    storage.make_directories(root)
    return Place(storage, root)


def test_file_written_in_slices_is_read_from_any_position(place: Place) -> None:
    file = place.storage.open(place.path("a"), create=True)
    assert file.pwritev([b"one", bytearray(b"two"), memoryview(b"three")], 0) == 11
    assert file.pwritev([b"TWO"], 3) == 3
    assert file.pread(100, 0) == b"oneTWOthree"
    assert file.pread(3, 3) == b"TWO"
    assert file.pread(3, 11) == b""
    assert file.size() == 11
    file.close()


def test_one_pwritev_call_writes_thousands_of_slices(place: Place) -> None:
    file = place.storage.open(place.path("a"), create=True)
    assert file.pwritev([bytes([i % 256]) for i in range(5000)], 10) == 5000
    assert file.size() == 5010
    assert file.pread(3, 10) == b"\x00\x01\x02"
    file.close()


def test_truncate_cuts_a_file_and_extends_it_with_zeros(place: Place) -> None:
    file = place.storage.open(place.path("a"), create=True)
    file.pwritev([b"0123456789"], 0)
    file.truncate(4)
    assert file.pread(10, 0) == b"0123"
    file.truncate(6)
    assert file.pread(10, 0) == b"0123\x00\x00"
    file.sync()
    file.close()


def test_closed_file_refuses_access_and_a_second_close_is_harmless(place: Place) -> None:
    file = place.storage.open(place.path("a"), create=True)
    file.close()
    file.close()
    with pytest.raises(StorageFailed):
        file.pread(1, 0)
    with pytest.raises(StorageFailed):
        file.pwritev([b"x"], 0)


def test_open_of_a_missing_file_fails_with_its_path(place: Place) -> None:
    with pytest.raises(StorageFailed) as failure:
        place.storage.open(place.path("missing"))
    assert failure.value.path == place.path("missing")
    assert isinstance(failure.value.cause, FileNotFoundError)
    with pytest.raises(StorageFailed):
        place.storage.read(place.path("missing"))
    with pytest.raises(StorageFailed):
        place.storage.names(place.path("missing"))


def test_write_atomically_replaces_the_whole_file(place: Place) -> None:
    for data in (b"first and longer", b"second"):
        place.storage.write_atomically(place.path("a"), data)
    place.storage.write_atomically(place.path("b"), b"", sync=False)
    assert place.storage.read(place.path("a")) == b"second"
    assert place.storage.names(place.root) == ["a", "b"]


def test_private_file_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    DiskStorage().write_atomically(str(path), b"new", private=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_bytes() == b"new"


def test_directories_are_made_renamed_and_removed_as_trees(
    place: Place,
) -> None:
    storage = place.storage
    deep = place.path("x/y")
    storage.make_directories(deep)
    storage.make_directories(deep)
    storage.write_atomically(f"{deep}/f", b"content")
    assert storage.is_directory(deep)
    assert not storage.is_directory(f"{deep}/f")
    storage.rename(place.path("x"), place.path("z"))
    assert storage.names(place.root) == ["z"]
    assert storage.read(place.path("z/y/f")) == b"content"
    storage.sync_directory(place.path("z"))
    storage.remove_tree(place.path("z"))
    storage.remove_tree(place.path("z"))
    assert not storage.exists(place.path("z"))


def test_open_file_survives_the_rename_of_its_directory(place: Place) -> None:
    place.storage.make_directories(place.path("x"))
    file = place.storage.open(place.path("x/f"), create=True)
    place.storage.rename(place.path("x"), place.path("z"))
    file.pwritev([b"late"], 0)
    assert place.storage.read(place.path("z/f")) == b"late"
    file.close()


def test_modification_time_is_the_time_of_the_last_write(place: Place) -> None:
    if isinstance(place.storage, MemoryStorage):
        place.storage.wall_ms = lambda: int(time.time() * 1000)
    before = time.time() * 1000
    file = place.storage.open(place.path("f"), create=True)
    file.pwritev([b"x"], 0)
    file.close()
    # The kernel may record the time of its last clock tick as a file's time.
    assert before - 1000 < place.storage.modified_ms(place.path("f")) <= time.time() * 1000
    with pytest.raises(StorageFailed):
        place.storage.modified_ms(place.path("none"))


def test_modification_time_can_be_set_and_survives_a_rename(place: Place) -> None:
    place.storage.write_atomically(place.path("f"), b"x")
    place.storage.set_modified_ms(place.path("f"), 1_700_000_000_123)
    place.storage.rename(place.path("f"), place.path("g"))
    assert place.storage.modified_ms(place.path("g")) == 1_700_000_000_123
    with pytest.raises(StorageFailed):
        place.storage.set_modified_ms(place.path("f"), 0)


def test_removing_a_file_twice_is_no_error(place: Place) -> None:
    place.storage.write_atomically(place.path("a"), b"x")
    place.storage.remove(place.path("a"))
    place.storage.remove(place.path("a"))
    assert not place.storage.exists(place.path("a"))


def test_lock_is_exclusive_until_it_is_closed(place: Place) -> None:
    held = place.storage.lock(place.path(".lock"))
    assert held is not None
    assert place.storage.lock(place.path(".lock")) is None
    held.close()
    again = place.storage.lock(place.path(".lock"))
    assert again is not None
    again.close()


def test_make_directories_returns_true_only_if_it_created_a_directory(place: Place) -> None:
    deep = place.path("p/q")
    assert place.storage.make_directories(deep) is True
    assert place.storage.make_directories(deep) is False


def test_make_directories_fails_if_a_file_has_the_path(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"")
    with pytest.raises(StorageFailed):
        DiskStorage().make_directories(str(tmp_path / "f"))


def test_linked_file_survives_the_removal_of_its_original_name(
    place: Place,
) -> None:
    storage = place.storage
    storage.write_atomically(place.path("a"), b"same")
    assert storage.link(place.path("a"), place.path("b"))
    assert storage.link(place.path("b"), place.path("c"))
    storage.remove(place.path("a"))
    storage.write_atomically(place.path("c"), b"other")
    assert (storage.read(place.path("b")), storage.read(place.path("c"))) == (b"same", b"other")


def test_link_returns_false_when_source_is_missing_or_target_exists(place: Place) -> None:
    storage = place.storage
    storage.write_atomically(place.path("a"), b"a")
    storage.write_atomically(place.path("b"), b"b")
    assert not storage.link(place.path("missing"), place.path("c"))
    assert not storage.link(place.path("a"), place.path("b"))
    assert storage.read(place.path("b")) == b"b"


def test_usable_disk_space_is_at_most_the_total_disk_space(place: Place) -> None:
    place.storage.make_directories(f"{place.root}/a")
    total, usable = place.storage.room(f"{place.root}/a")
    assert 0 <= usable <= total


def test_symbolic_link_is_detected_and_not_followed(tmp_path: Path) -> None:
    storage = DiskStorage()
    (tmp_path / "file").write_bytes(b"mine")
    for name, target in (("link", "file"), ("dangling", "none"), ("new.tmp", "file")):
        (tmp_path / name).symlink_to(tmp_path / target)
        assert storage.is_link(str(tmp_path / name))
        with pytest.raises(StorageFailed, match=f"{name}: is a symbolic link"):
            storage.open(str(tmp_path / name), create=True)
        with pytest.raises(StorageFailed, match=f"{name}: is a symbolic link"):
            storage.lock(str(tmp_path / name))
    with pytest.raises(StorageFailed, match="is a symbolic link"):
        storage.write_atomically(str(tmp_path / "new"), b"other")
    assert (tmp_path / "file").read_bytes() == b"mine"
    assert not (tmp_path / "none").exists()


def test_file_and_directory_are_not_symbolic_links(place: Place) -> None:
    place.storage.write_atomically(place.path("a"), b"")
    assert not place.storage.is_link(place.path("a"))
    assert not place.storage.is_link(place.root)
    assert not place.storage.is_link(place.path("missing"))
