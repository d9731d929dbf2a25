"""Writing of batches and streams to Parquet tables that every reader reads once, also after a `kill -9`.

Spark's own file sink leaves files of killed micro-batches under their final names. It lists the valid files in
`_spark_metadata`, which only Spark reads. Here Spark's tasks only stage files, as in an archive, and the driver adds
the files of a micro-batch to the table after all its tasks have succeeded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    AtomicType,
    DataType,
    MapType,
    NullType,
    StructType,
    VariantType,
    YearMonthIntervalType,
)

from minikafka.base.errors import ConfigError
from minikafka.spark.frames import map_in_arrow, quoted
from minikafka.spark.micro_batches import plan_of
from minikafka.spark.parquet.table_directory import (
    MicroBatch,
    OtherQuery,
    StagedFile,
    TableDirectory,
)
from minikafka.spark.parquet.table_read import TableRead
from minikafka.spark.parquet.table_save import PLACE, STAGED, TableStage, write_empty
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.streams.checkpoints import planned_offsets, query_id
from minikafka.spark.storage.files import STAGING
from minikafka.spark.storage.locations import is_uri

_NOT_WRITTEN: Final = (NullType, VariantType, YearMonthIntervalType)


@dataclass(frozen=True)
class TableSettings:
    """The path or URI of a table, its partition columns, and the compression of its files."""

    path: str
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options of the store, if `path` is a URI. They may be secrets."""


def save_table(frame: DataFrame, settings: TableSettings, mode: str, instead: str = "") -> None:
    """Add the rows of a batch to a table. `mode`: append, overwrite, or error if the table has rows.

    After a crash the table has none of the rows, or the next run removes them. So the user may repeat the command.
    `instead`: what the user may do instead of naming another directory, for the text of the error.
    """
    table = _Table(settings)
    with table.directory.locked():
        if mode == "error" and not table.directory.is_empty():
            raise PipelineError(f"{settings.path} already exists: name another directory{instead}")
        if mode != "overwrite":
            table.directory.check_format()
        table.directory.add_batch(table.stage(frame), overwrite=mode == "overwrite")


def read_table(spark: SparkSession, settings: TableSettings, schema: StructType) -> DataFrame:
    """Return columns of a table. A table at a URI is read without the connector of Hadoop that Spark needs."""
    if not is_uri(settings.path):
        return spark.read.schema(schema).parquet(settings.path)
    files = TableDirectory(settings.path, settings.storage).files
    names = [(name,) for name in files.names()]
    columns = spark.createDataFrame([], schema).toArrow().schema
    task = TableRead(files.url, columns, settings.storage)
    listed = spark.createDataFrame(names, "name string").repartition(max(len(names), 1))
    return map_in_arrow(listed, task.read, schema.toDDL())


@contextmanager
def table_stream(
    spark: SparkSession, settings: TableSettings, checkpoint: str, *, by_batch: bool = False
) -> Iterator[TableStream]:
    """Yield the function for `foreachBatch` that adds each micro-batch of a stream to a table.

    `by_batch`: each micro-batch has a directory of its own, and the table holds no rows of another query.
    Raises `OtherQuery` if the table holds the rows of another query.
    """
    table = _Table(settings)
    with table.directory.locked():
        table.directory.check_format()
        query = query_id(spark, checkpoint)
        table.directory.check_query(query)
        if by_batch and query is None and not table.directory.is_empty():
            raise OtherQuery(
                f"{settings.path} holds the rows of another query, and the checkpoint {checkpoint} is new:"
                " name a new directory, or the checkpoint of this query"
            )
        yield TableStream(table, checkpoint, by_batch=by_batch)


class TableStream:
    """The function that adds the micro-batches of a stream. `rows`: the number of rows that this run has added."""

    def __init__(self, table: _Table, checkpoint: str, *, by_batch: bool) -> None:
        self._table = table
        self._checkpoint = checkpoint
        self._by_batch = by_batch
        self.rows = 0

    def __call__(self, frame: DataFrame, batch: int) -> None:
        """Add the rows of a micro-batch."""
        prefix = f"batch={batch:012d}" if self._by_batch else ""
        self.rows += self._table.add(frame, self._checkpoint, batch, prefix)


class _Table:
    """A table that is being written by this process."""

    def __init__(self, settings: TableSettings) -> None:
        self._settings = settings
        self.directory = TableDirectory(settings.path, settings.storage)

    def add(self, frame: DataFrame, checkpoint: str, batch: int, prefix: str) -> int:
        """Add the rows of a micro-batch, unless a run that was killed has added them. Return their number.

        A micro-batch that is in the table is computed again, so that Spark's state and watermark stay correct.
        """
        spark = frame.sparkSession
        plan = plan_of(planned_offsets(spark, checkpoint, batch))
        found = MicroBatch(checkpoint, batch, plan.digest)
        query = query_id(spark, checkpoint)
        assert query is not None, "Spark writes the id before the first micro-batch"
        if self.directory.holds(query, found):
            frame.write.format("noop").mode("overwrite").save()
            return 0
        staged = self.stage(frame)
        self.directory.add_micro_batch(query, found, staged, prefix)
        self.directory.files.remove_folder(STAGING)
        return sum(one.rows for one in staged)

    def stage(self, frame: DataFrame) -> list[StagedFile]:
        """Write the rows to staged files, and return the files. A table without files gets one without rows."""
        columns = _partition_columns(frame, self._settings.partition_by)
        _check_types(frame, columns)
        codec, storage = self._settings.compression, self._settings.storage
        task = TableStage(self.directory.url, self._settings.partition_by, codec, storage)
        rows = map_in_arrow(_placed(frame, columns), task.write, STAGED).collect()
        staged = [StagedFile(*row) for row in rows]
        if not staged and not columns and self.directory.is_empty():
            schema = frame.limit(0).toArrow().schema
            staged = [write_empty(self.directory, schema, codec)]
        return staged


def _partition_columns(frame: DataFrame, partition_by: tuple[str, ...]) -> list[str]:
    """Return the names that the frame has for the partition columns. Spark ignores upper and lower case."""
    names = {name.lower(): name for name in frame.columns}
    return [names[name.lower()] for name in partition_by]


def _placed(frame: DataFrame, columns: list[str]) -> DataFrame:
    """Return the rows with the column `PLACE` instead of the partition columns, sorted by it in each task."""
    if not columns:
        return frame
    values = f.to_json(f.array(*(f.col(quoted(name)).cast("string") for name in columns)))
    others = [f.col(quoted(name)) for name in frame.columns if name not in columns]
    return frame.select(*others, values.alias(PLACE)).sortWithinPartitions(PLACE)


def _check_types(frame: DataFrame, columns: list[str]) -> None:
    """Raise `ConfigError` for columns that cannot be written to a Parquet file or be a partition column."""
    lowered = [name.lower() for name in frame.columns]
    if twice := sorted({name for name in lowered if lowered.count(name) > 1}):
        raise ConfigError(f"the result has two columns {twice[0]}: rename one in the step")
    if columns and len(columns) == len(frame.columns):
        raise ConfigError(
            "[sink] partition_by: at least one column must be left for the files; leave out a column"
        )
    for column in frame.schema.fields:
        if not _is_written(column.dataType):
            text = f"column {column.name} is of the type {column.dataType.simpleString()}"
            raise ConfigError(f"{text}, which Parquet files cannot hold: cast it to string")
        if column.name in columns and not isinstance(column.dataType, AtomicType):
            text = f"[sink] partition_by: column {column.name} is of the type {column.dataType.simpleString()}"
            raise ConfigError(f"{text}: cast it to string, or leave it out")


def _is_written(kind: DataType) -> bool:
    parts: list[DataType] = []
    if isinstance(kind, ArrayType):
        parts = [kind.elementType]
    elif isinstance(kind, MapType):
        parts = [kind.keyType, kind.valueType]
    elif isinstance(kind, StructType):
        parts = [field.dataType for field in kind.fields]
    return not isinstance(kind, _NOT_WRITTEN) and all(map(_is_written, parts))
