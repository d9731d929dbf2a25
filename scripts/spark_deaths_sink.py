"""A sink whose process kills itself, or the driver, at a named moment of a micro-batch.

The file `moment` in the directory of the run names the next moment, or `MOMENT of TOPIC`. The process that reaches it
removes the file, so each moment is used once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import cache, wraps
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from minikafka.spark.datasource import MinikafkaDataSource
from minikafka.spark.sink.once import commit, staged
from minikafka.spark.sink.once.transaction import SinkTransaction
from minikafka.spark.sink.writers import BatchWriter, StreamWriter

DIRECTORY = "SPARK_DEATHS_DIRECTORY"
"""The environment variable with the directory of the run."""
IN_A_TASK = "in a task, while it encodes rows"
DRIVER_MOMENTS = (
    "after the tasks, before the transaction",
    "after the rows, before the marker",
    "after the marker, before EndTxn",
    "after EndTxn, before the commit log",
)
_topics: list[str | None] = []
"""The topic of the last write of this process."""


def of_topic(moment: str, topic: str | None) -> str:
    """Return the name of a moment of the write to this topic."""
    return f"{moment} of {topic}"


def kill_task() -> None:
    """Kill this worker. Spark runs its task again."""
    os.kill(os.getpid(), signal.SIGKILL)


def kill_driver() -> None:
    """Kill the driver with its Java process, and then this worker."""
    os.killpg(os.getsid(0), signal.SIGKILL)
    kill_task()


def die_if_named(moment: str, kill: Callable[[], None]) -> None:
    """Call `kill` if the file names this moment."""
    file = Path(os.environ[DIRECTORY]) / "moment"
    try:
        if file.read_text() not in (moment, of_topic(moment, _topics[-1])):
            return
        file.unlink()
    except FileNotFoundError:
        return
    kill()


def before(moment: str, kill: Callable[[], None], call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that may die before it calls `call`."""

    @wraps(call)
    def changed(*arguments: Any, **named: Any) -> Any:
        die_if_named(moment, kill)
        return call(*arguments, **named)

    return changed


def after(moment: str, kill: Callable[[], None], call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that may die after it has called `call`."""

    @wraps(call)
    def changed(*arguments: Any, **named: Any) -> Any:
        result = call(*arguments, **named)
        die_if_named(moment, kill)
        return result

    return changed


def arm(topic: str | None) -> None:
    """Make the functions of the sink die at their moments, in this process. `topic`: that of the present write."""
    _topics[:] = [topic]
    _arm()


@cache
def _arm() -> None:
    begin, rows, marker, end = DRIVER_MOMENTS
    changes: tuple[tuple[Any, str, Any, str, Callable[[], None]], ...] = (
        (staged, "encoded", before, IN_A_TASK, kill_task),
        (commit, "SinkTransaction", before, begin, kill_driver),
        (SinkTransaction, "mark", before, rows, kill_driver),
        (SinkTransaction, "commit", before, marker, kill_driver),
        (SinkTransaction, "commit", after, end, kill_driver),
    )
    for owner, name, when, moment, kill in changes:
        setattr(owner, name, when(moment, kill, getattr(owner, name)))


class DyingWriter(StreamWriter):
    """The writer of a stream whose processes may die."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        arm(self._options.topic)
        return super().write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit a micro-batch."""
        arm(self._options.topic)
        super().commit(messages, batchId)


class DyingTableWriter(BatchWriter):
    """The writer of a table, as in `foreachBatch`, whose processes may die."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage the rows of a task."""
        arm(self._options.topic)
        return super().write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the table."""
        arm(self._options.topic)
        super().commit(messages)


class DyingSource(MinikafkaDataSource):
    """The data source with these writers."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format()`."""
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream."""
        return DyingWriter(self._write_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a table."""
        return DyingTableWriter(self._write_options(schema))
