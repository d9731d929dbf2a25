"""Opens a table of any format."""

from __future__ import annotations

from minikafka.spark.lakehouse.delta import DeltaLakeTable
from minikafka.spark.lakehouse.iceberg import IcebergTable
from minikafka.spark.lakehouse.tables import DELTA, LakeSettings, LakeTable


def open_table(settings: LakeSettings) -> LakeTable:
    """Return the table. Raises `NoLibrary` if the format's library is missing, and `ConfigError` for wrong settings."""
    return DeltaLakeTable(settings) if settings.format == DELTA else IcebergTable(settings)


def check_table(settings: LakeSettings) -> None:
    """Raise `TableError` if the table's catalog or place does not answer, before a job starts."""
    open_table(settings).exists()
