"""The windows that the watermark of a stream has not passed yet, kept in the stream's checkpoint.

Spark's own state of a streaming aggregate drops late rows without counting records: its number of dropped rows
counts groups of a task. Here each micro-batch is a batch query that knows the watermark, so it counts each record.

`open-windows/N` in the checkpoint holds the open windows after micro-batch N, and `open-windows/N.json` its
watermark. Both are written before the result of the micro-batch. A micro-batch that is repeated after a crash
begins with the files of the previous one, and ends with the watermark that it had before the crash. So it has
the same result, also if the delay of the watermark was changed in between.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from minikafka.pipeline.session.failures import PipelineError
from minikafka.pipeline.streams.checkpoints import STATE, CheckpointFiles

DIRECTORY: Final = "open-windows"
_MICROS_MIN: Final = -(2**63)


@dataclass(frozen=True)
class Mark:
    """The watermark after a micro-batch, in Unix microseconds, and the number of records in open windows.

    `watermark`: None before the first record with a time.
    """

    watermark: int | None = None
    records: int = 0

    def advanced(self, newest: int | None, delay_s: int) -> int | None:
        """Return the watermark after records up to the time `newest`; a watermark never goes back."""
        if newest is None:
            return self.watermark
        reached = max(newest - 1_000_000 * delay_s, _MICROS_MIN)
        return reached if self.watermark is None else max(self.watermark, reached)


class OpenWindows:
    """The open windows in a checkpoint. Raises `PipelineError` for a checkpoint with Spark's own state."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        self._files = CheckpointFiles(spark, checkpoint)
        if self._files.has(STATE):
            raise PipelineError(
                f"the checkpoint {checkpoint} was written by an earlier version, which did not count late"
                " records: name a new checkpoint directory, and a new directory for the results"
            )

    def newest(self) -> Mark:
        """Return the mark of the newest micro-batch."""
        names = [name for name in self._files.names(DIRECTORY) if name.endswith(".json")]
        numbers = [int(name.removesuffix(".json")) for name in names]
        return (self.mark(max(numbers)) if numbers else None) or Mark()

    def mark(self, batch: int) -> Mark | None:
        """Return the mark after a micro-batch; None if there is none."""
        name = f"{DIRECTORY}/{batch}.json"
        if not self._files.read(name):
            return None  # a crash may leave an empty file
        return Mark(**(self._files.facts(name) or {}))

    def rows(self, spark: SparkSession, batch: int, schema: str) -> DataFrame:
        """Return the open windows after a micro-batch, which has a mark."""
        return spark.read.schema(schema).parquet(self._files.url(f"{DIRECTORY}/{batch}"))

    def keep(self, batch: int, rows: DataFrame, mark: Mark) -> None:
        """Write the open windows and the mark after a micro-batch, and remove those that no run can need."""
        rows.write.mode("overwrite").parquet(self._files.url(f"{DIRECTORY}/{batch}"))
        self._files.write(f"{DIRECTORY}/{batch}.json", json.dumps(asdict(mark)))
        for name in (str(batch - 2), f"{batch - 2}.json"):
            self._files.remove(f"{DIRECTORY}/{name}")
