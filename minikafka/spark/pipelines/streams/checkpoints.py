"""The checkpoint of a stream: its files on any file system of Hadoop, and the settings of the stream's query.

The settings are in a file of the checkpoint, and are compared at the next start. Spark compares only the data types of
the state, and only when there is new data. Without this check, a changed window length would go unnoticed, and new
counts would be mixed with counts of the old windows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from minikafka.base.names import parse_json
from minikafka.spark.pipelines.session.failures import PipelineError


class CheckpointFiles:
    """The files of one checkpoint. Names are paths below its directory."""

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

    def facts(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in a file; None if there is no such file. Raises `PipelineError` if it is damaged."""
        text = self.read(name)
        try:
            return None if text is None else parse_json(text)
        except ValueError as error:
            place = self.url(name)
            raise PipelineError(
                f"{place} is damaged: {error}; restore it, or name a new checkpoint"
            ) from error

    def write(self, name: str, text: str) -> None:
        """Write a file, and replace a file of this name."""
        stream = self._files.create(self._path(name), True)
        stream.write(bytearray(text.encode()))
        stream.close()

    def names(self, directory: str) -> list[str]:
        """Return the names of the files and directories in a directory; an empty list if it does not exist."""
        if not self.has(directory):
            return []
        return [
            str(one.getPath().getName()) for one in self._files.listStatus(self._path(directory))
        ]

    def remove(self, name: str) -> None:
        """Remove a file or directory, if it exists."""
        self._files.delete(self._path(name), True)

    def url(self, name: str) -> str:
        """Return the path of a file or directory in the notation that Spark reads and writes."""
        return str(self._path(name))


_FILE: Final = "minikafka-query.json"
STATE: Final = "state"
"""The directory of a checkpoint in which Spark stores groups and aggregates."""
_SHOWN_MAX: Final = 20


def check_query(
    spark: SparkSession, checkpoint: str, query: Mapping[str, object], state: str = STATE
) -> None:
    """Raise `PipelineError` if the query's settings differ from the settings in the checkpoint.

    If the checkpoint has no directory `state` or no settings, write the query's settings to the checkpoint
    instead: then nothing depends on the settings of earlier runs.
    """
    directory = CheckpointFiles(spark, checkpoint)
    before = directory.facts(_FILE) if directory.has(state) else None
    if before is None:
        directory.write(_FILE, json.dumps(query))
    elif text := differences(before, query):
        raise PipelineError(
            f"the checkpoint {checkpoint} belongs to another query: {text}; name a new checkpoint"
            " directory, and a new directory for the results"
        )


def query_id(spark: SparkSession, checkpoint: str) -> str | None:
    """Return the id of the query to which a checkpoint belongs; None if no query has used the checkpoint yet."""
    found = CheckpointFiles(spark, checkpoint).facts("metadata")
    return None if found is None else str(found.get("id"))


def planned_offsets(spark: SparkSession, checkpoint: str, batch: int) -> str:
    """Return the text of Spark's file with the planned offsets of a micro-batch. A repetition keeps the text."""
    return CheckpointFiles(spark, checkpoint).read(f"offsets/{batch}") or ""


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
