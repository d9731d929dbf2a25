"""The limit of file descriptors of this process, and the descriptors that long-open files leave free."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from minikafka.base.errors import StorageFailed
from minikafka.runtime.descriptors import ProcessDescriptors, raise_soft_limit, soft_limit
from minikafka.runtime.storage import KEPT, DiskStorage


@pytest.fixture
def restored() -> Iterator[int]:
    """Restore the soft limit after the test; return the hard limit."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def set_soft(limit: int, hard: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def test_open_descriptors_are_counted() -> None:
    descriptors = ProcessDescriptors()
    before = descriptors.used()
    extra = [os.open(os.devnull, os.O_RDONLY) for _ in range(3)]
    assert descriptors.used() == before + 3
    for one in extra:
        os.close(one)
    assert descriptors.used() == before


def test_soft_limit_is_raised_to_the_hard_limit(restored: int) -> None:
    set_soft(256, restored)
    assert (soft_limit(), ProcessDescriptors().limit()) == (256, 256)
    raise_soft_limit()
    assert soft_limit() == restored


def test_count_reports_no_free_descriptor_if_none_is_left(restored: int) -> None:
    descriptors = ProcessDescriptors()
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    set_soft(lowest, restored)
    assert descriptors.used() >= descriptors.limit()


def test_files_stay_closed_while_only_the_kept_descriptors_are_free(
    restored: int, tmp_path: Path
) -> None:
    storage = DiskStorage()
    lowest = os.open(os.devnull, os.O_RDONLY)
    os.close(lowest)
    set_soft(lowest + KEPT + 1, restored)
    file = storage.open(f"{tmp_path}/a", create=True)
    with pytest.raises(StorageFailed) as caught:
        storage.open(f"{tmp_path}/b", create=True)
    assert caught.value.lacks_descriptors
    assert not storage.exists(f"{tmp_path}/b")
    storage.write_atomically(f"{tmp_path}/c", b"a checkpoint")
    assert (storage.read(f"{tmp_path}/c"), storage.names(str(tmp_path))) == (
        b"a checkpoint",
        ["a", "c"],
    )
    file.close()
    storage.open(f"{tmp_path}/b", create=True).close()


def test_other_failures_do_not_count_as_a_missing_descriptor(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed) as caught:
        DiskStorage().open(f"{tmp_path}/missing")
    assert not caught.value.lacks_descriptors


@pytest.mark.parametrize(
    ("number", "lacks"),
    [(errno.EMFILE, True), (errno.ENFILE, True), (errno.EIO, False), (errno.ENOSPC, False)],
)
def test_only_missing_descriptors_are_no_disk_failure(number: int, lacks: bool) -> None:
    failure = StorageFailed("/d/x", OSError(number, os.strerror(number)))
    assert failure.lacks_descriptors is lacks
    assert not failure.for_good("in the middle").lacks_descriptors
