"""The settings of a stream's query, kept in its checkpoint and compared at the next start.

Spark compares only the types of the state, and only when there is new data. Without this check, windows
of another length would go unnoticed, and their counts would be mixed with the old ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from minikafka.pipeline.failures import PipelineError

_FILE: Final = "minikafka-query.json"
_STATE: Final = "state"
"""Spark's directory, inside a checkpoint, for groups and aggregates.

A checkpoint without this directory may be continued with any query.
"""
_SHOWN_MAX: Final = 20


def check_query(spark: SparkSession, checkpoint: str, query: Mapping[str, object]) -> None:
    """Write the settings of a query to its checkpoint, unless the checkpoint has settings and state already.

    In that case raises `PipelineError` if the settings differ.
    """
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path
    file = path(checkpoint, _FILE)
    files = file.getFileSystem(spark._jsc.hadoopConfiguration())
    if files.exists(path(checkpoint, _STATE)) and files.exists(file):
        stream = files.open(file)
        before = json.loads(jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        stream.close()
        if text := differences(before, query):
            raise PipelineError(
                f"the checkpoint {checkpoint} belongs to another query: {text}; name a new checkpoint"
                " directory, and a new one for its results"
            )
        return
    stream = files.create(file, True)
    stream.write(bytearray(json.dumps(query).encode()))
    stream.close()


def differences(before: Mapping[str, object], now: Mapping[str, object]) -> str:
    """Return a text that names the settings that differ, "" if none; a missing setting is shown as `none`."""
    return ", ".join(
        _difference(name, before.get(name), now.get(name))
        for name in {**before, **now}
        if before.get(name) != now.get(name)
    )


def _difference(name: str, *settings: object) -> str:
    was, now = ("none" if setting is None else str(setting) for setting in settings)
    is_short = max(len(was), len(now)) <= _SHOWN_MAX
    return f"{name} was {was} and is {now} now" if is_short else f"{name} has changed"
