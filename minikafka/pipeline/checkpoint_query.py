"""The query settings of a stream, stored in the stream's checkpoint and compared at the next start.

Spark compares only the data types of the state, and only when there is new data. Without this check, a
changed window length would go unnoticed, and new counts would be mixed with counts of the old windows.
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
                " directory, and a new directory for the results"
            )
        return
    stream = files.create(file, True)
    stream.write(bytearray(json.dumps(query).encode()))
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
