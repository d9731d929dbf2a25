"""Tables that several steps read."""

from __future__ import annotations

from pyspark import StorageLevel
from pyspark.sql import DataFrame


def kept(table: DataFrame) -> DataFrame:
    """Compute the table now, and return it without the query plan that led to it.

    A cached table would keep that plan: with fifteen checks on top of each other, planning takes minutes.
    """
    return table.localCheckpoint(storageLevel=StorageLevel.MEMORY_AND_DISK)
