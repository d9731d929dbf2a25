"""The files of a stream's checkpoint: Spark's own, and one with the stream's query settings.

The settings are compared at the next start. Spark compares only the data types of the state, and only when there
is new data. Without this check, a changed window length would go unnoticed, and new counts would be mixed with
counts of the old windows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from minikafka.pipeline.failures import PipelineError

_FILE: Final = "minikafka-query.json"
_STATE: Final = "state"
"""The directory of a checkpoint in which Spark stores groups and aggregates.

Any query may continue from a checkpoint without this directory.
"""
_SHOWN_MAX: Final = 20


def check_query(spark: SparkSession, checkpoint: str, query: Mapping[str, object]) -> None:
    """Raise `PipelineError` if the query's settings differ from the settings in the checkpoint.

    If the checkpoint has no state or no settings, write the query's settings to the checkpoint instead.
    """
    directory = _Checkpoint(spark, checkpoint)
    before = directory.read(_FILE) if directory.has(_STATE) else None
    if before is None:
        directory.write(_FILE, json.dumps(query))
    elif text := differences(json.loads(before), query):
        raise PipelineError(
            f"the checkpoint {checkpoint} belongs to another query: {text}; name a new checkpoint"
            " directory, and a new directory for the results"
        )


def query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the id of the query to which a checkpoint belongs; None if no query has used the checkpoint yet."""
    found = _Checkpoint(spark, checkpoint).read("metadata")
    return None if found is None else str(json.loads(found)["id"])


def planned_offsets(spark: SparkSession, checkpoint: str, batch: int) -> str:
    """Return the text in which Spark has planned a micro-batch. It stays the same when the micro-batch is repeated."""
    return _Checkpoint(spark, checkpoint).read(f"offsets/{batch}") or ""


class _Checkpoint:
    """The files of a checkpoint, on any file system of Hadoop."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._jvm: Any = spark._jvm
        self._checkpoint = checkpoint
        configuration = spark._jsc.hadoopConfiguration()
        self._files = self._path("").getFileSystem(configuration)

    def _path(self, name: str) -> Any:
        path = self._jvm.org.apache.hadoop.fs.Path
        return path(self._checkpoint, name) if name else path(self._checkpoint)

    def has(self, name: str) -> bool:
        """True if the checkpoint has a file or directory of this name."""
        return bool(self._files.exists(self._path(name)))

    def read(self, name: str) -> str | None:
        """Return the text of a file; None if there is no such file."""
        if not self.has(name):
            return None
        stream = self._files.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file, and replace a file of this name."""
        stream = self._files.create(self._path(name), True)
        stream.write(bytearray(text.encode()))
        stream.close()


def differences(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Return a text with the settings that differ; "" if all are equal. A missing setting is shown as `none`."""
    return ", ".join(
        _difference(name, before.get(name), now.get(name))
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    )


def _difference(name: str, *settings: object) -> str:
    was, now = ("none" if setting is None else str(setting) for setting in settings)
    is_short = max(len(was), len(now)) <= _SHOWN_MAX
    return f"{name} was {was} and is {now} now" if is_short else f"{name} has changed"
