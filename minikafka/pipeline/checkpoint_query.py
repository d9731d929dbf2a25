"""What the query of a stream computes, kept in its checkpoint and compared at the next start.

Spark compares only the types of the state, and only when there is new data: another length of the windows
would go unnoticed, and its counts would be mixed with the old ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import SparkSession

from minikafka.pipeline.failures import PipelineError

_FILE: Final = "minikafka-query.json"
_OFFSETS: Final = "offsets"
"""Spark's directory of planned micro-batches; without one nothing was computed yet."""


def check_query(spark: SparkSession, checkpoint: str, query: Mapping[str, object]) -> None:
    """Keep the settings of a query in a new checkpoint. Raises `PipelineError` if an old one has others."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path
    file, offsets = path(checkpoint, _FILE), path(checkpoint, _OFFSETS)
    files = file.getFileSystem(spark._jsc.hadoopConfiguration())
    has_begun = files.exists(offsets) and len(files.listStatus(offsets)) > 0
    if has_begun and files.exists(file):
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
    """Return in words which settings differ; a setting that one of them lacks counts as none."""
    names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    return ", ".join(
        f"{name} was {_shown(before.get(name))} and is {_shown(now.get(name))} now"
        for name in names
    )


def _shown(setting: object) -> str:
    return "none" if setting is None else str(setting)
