"""What a micro-batch of Spark contains, as far as its checkpoint tells.

The number of a micro-batch does not say this: after a checkpoint was restored from a backup, Spark plans a micro-batch
of the same number again, with other offsets. The text that Spark writes to the file `offsets/N` of the checkpoint
before the micro-batch runs stays the same if the micro-batch runs again, and differs if it is planned again.
"""

from __future__ import annotations

import hashlib
import logging
import os
from contextlib import suppress
from dataclasses import dataclass

from pyarrow import fs

from minikafka.base.names import parse_json

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MicroBatchPlan:
    """A micro-batch as Spark has planned it. `time_ms`: when it was planned, in Unix milliseconds; None if unknown."""

    digest: str
    time_ms: int | None = None


def plan_of(text: str) -> MicroBatchPlan:
    """Return the plan in the text of a file `offsets/N`."""
    found = None
    with suppress(ValueError, IndexError):
        found = parse_json(text.splitlines()[1].encode()).get("batchTimestampMs")
    digest = hashlib.blake2b(text.encode(), digest_size=32).hexdigest()
    return MicroBatchPlan(digest, found if type(found) is int else None)


def read_plan(checkpoint: str | None, batch: int) -> MicroBatchPlan | None:
    """Return the plan of a micro-batch; None if this process cannot read the checkpoint. Needs no Spark session."""
    if not checkpoint:
        return None
    try:
        files, path = place(checkpoint)
        with files.open_input_stream(f"{path.rstrip('/')}/offsets/{batch}") as file:
            return plan_of(file.read().decode())
    except (OSError, ValueError) as error:
        logger.info("Cannot read the checkpoint %s: %s", checkpoint, error)
        return None


def place(checkpoint: str) -> tuple[fs.FileSystem, str]:
    """Return the file system and the path of a checkpoint, whose name is a path or a URL in Hadoop's notation.

    Raises `OSError` and `ValueError`.
    """
    scheme, separator, path = checkpoint.partition(":")
    if not separator or "/" in scheme:
        return fs.LocalFileSystem(), os.path.abspath(checkpoint)
    if scheme == "file":
        return fs.LocalFileSystem(), "/" + path.lstrip("/")
    files, path = fs.FileSystem.from_uri(checkpoint)
    return files, str(path)
