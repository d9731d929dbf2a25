"""Functions over Arrow batches in Spark, without pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
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
