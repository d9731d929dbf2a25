"""Functions over Spark's tables that the DataFrame API lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def map_in_arrow(table: DataFrame, function: ArrowFunction, schema: str) -> DataFrame:
    """Return the table of the batches that `function` yields. Each task calls `function` with the task's input.

    Works like `DataFrame.mapInArrow`, but pandas need not be installed.
    """
    kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
    mapped = UserDefinedFunction(function, returnType=schema, evalType=kind)
    column = mapped(*(table[quoted(name)] for name in table.columns))
    return DataFrame(table._jdf.mapInArrow(column._jc, False, None), table.sparkSession)


def quoted(name: str) -> str:
    """Return a column's name for Spark, which otherwise takes a dot in it for the field of a struct."""
    return "`" + name.replace("`", "``") + "`"


def kept(table: DataFrame) -> DataFrame:
    """Compute the table now, and return the result without its query plan.

    A cached table would keep its query plan. Planning a query over fifteen checks would then take minutes.
    """
    return table.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)
