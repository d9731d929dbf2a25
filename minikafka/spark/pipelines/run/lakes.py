"""The sinks `delta` and `iceberg` in the TOML file of a pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from minikafka.base.errors import ConfigError
from minikafka.spark.lakehouse.opening import open_table
from minikafka.spark.lakehouse.programs import table_settings
from minikafka.spark.lakehouse.stage import NULL, REFUSE
from minikafka.spark.lakehouse.tables import ICEBERG, RECORDS, LakeSettings
from minikafka.spark.pipelines.run.toml_table import TomlTable


@dataclass(frozen=True)
class LakeSink:
    """A sink that adds rows to a table of Delta Lake or Iceberg."""

    settings: LakeSettings
    mode: str = "append"


def lake_sink(table: TomlTable, kind: str, modes: Sequence[str], codecs: Sequence[str]) -> LakeSink:
    """Return the sink that the table [sink] defines. Raises `ConfigError` with the file, table and key."""
    path, columns = table.optional("path") or "", table.texts("partition_by")
    mode = table.choice("mode", modes, "append")
    codec = table.choice("compression", codecs, "zstd")
    timestamps = table.choice("timestamps", (REFUSE, NULL), REFUSE)
    name = table.optional("table") if kind == ICEBERG else None
    catalog = _texts(table.table("catalog")) if kind == ICEBERG else {}
    storage = {} if kind == ICEBERG else _texts(table.table("storage"))
    table.finish()
    try:
        settings = table_settings(
            kind,
            path,
            table=name or RECORDS,
            catalog=catalog,
            storage=storage,
            partition_by=columns,
            timestamps=timestamps,
            compression=codec,
        )
        open_table(settings)
    except ConfigError as error:
        raise table.error(str(error)) from error
    return LakeSink(settings, mode)


def _texts(table: TomlTable | None) -> Mapping[str, str]:
    return table.texts_by_key() if table else {}
