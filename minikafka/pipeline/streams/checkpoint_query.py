"""The settings of a stream's query in a file of its checkpoint, and facts from Spark's own files there.

The settings are compared at the next start. Spark compares only the data types of the state, and only when there
is new data. Without this check, a changed window length would go unnoticed, and new counts would be mixed with
counts of the old windows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import SparkSession

from minikafka.pipeline.session.failures import PipelineError
from minikafka.pipeline.streams.checkpoint_files import CheckpointFiles

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
    """Return the text of Spark's file with the planned offsets of a micro-batch. A repetition has the same text."""
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
