"""A function that computes a table once for several readers."""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import DataFrame


def kept(table: DataFrame) -> DataFrame:
    """Compute the table now, and return the result without its query plan.

    A cached table would keep its query plan. Planning a query over fifteen checks would then take minutes.
    """
    return table.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)
