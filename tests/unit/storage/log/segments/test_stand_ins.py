"""The stand-in that replaces a segment's file after a disk failure."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from minikafka.base.errors import StorageFailed
from minikafka.simulation.storage import MemoryStorage
from minikafka.storage.log.segments.stand_ins import RefusingFile


@pytest.mark.parametrize(
    "call",
    [
        lambda file: file.pread(1, 0),
        lambda file: file.pwritev([b""], 0),
        lambda file: file.size(),
        lambda file: file.truncate(0),
        lambda file: file.sync(),
    ],
    ids=["pread", "pwritev", "size", "truncate", "sync"],
)
def test_file_that_replaces_a_failed_file_raises_the_same_error_in_every_call(
    call: Callable[[RefusingFile], object],
) -> None:
    failure = StorageFailed("/d/x", OSError(errno.EIO, "I/O error"))
    file = MemoryStorage().open("/f", create=True)
    refusing = RefusingFile(failure, file)
    with pytest.raises(StorageFailed, match="I/O error"):
        call(refusing)
    refusing.close()
    with pytest.raises(StorageFailed):
        file.size()
