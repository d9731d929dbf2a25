"""The file that takes the place of a segment's file after a failure."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
from support.memory_storage import MemoryStorage

from minikafka.base.errors import StorageFailed
from minikafka.log.stand_ins import RefusingFile


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
def test_failed_file_refuses_every_call_with_the_same_error(
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
