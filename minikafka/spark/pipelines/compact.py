"""The pipeline `compact`, which merges the small files of a table and removes its old states, without Spark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from minikafka.base.errors import ConfigError
from minikafka.runtime.clock import SystemClock
from minikafka.spark.lakehouse.opening import open_table
from minikafka.spark.lakehouse.places import absolute, is_remote, local_path
from minikafka.spark.lakehouse.tables import DELTA, ICEBERG, LakeSettings
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.session.report import Fact, Summary

TARGET_BYTES: Final = 128 << 20


@dataclass(frozen=True)
class CompactSettings:
    """The settings of the pipeline. `target_bytes`: maximum size of a merged file.

    `expire_s`: how many seconds ago a state must have been replaced to be removed; None keeps all states.
    """

    table: LakeSettings
    target_bytes: int = TARGET_BYTES
    expire_s: int | None = None


def format_of(place: str, *, has_catalog: bool) -> str:
    """Return the format of the table at a path or URI. Raises `ConfigError` if there is none.

    A table of Iceberg at a URI has a catalog.
    """
    if has_catalog:
        return ICEBERG
    found = absolute(place)
    if is_remote(found):
        return DELTA
    directory = Path(local_path(found))
    if (directory / "_delta_log").exists():
        return DELTA
    if (directory / "metadata").exists():
        return ICEBERG
    raise ConfigError(f"{place}: there is no table of Delta Lake or Iceberg")


def run(settings: CompactSettings) -> Summary:
    """Merge the small files, and remove old states if an age is set. Return the numbers of files."""
    table = open_table(settings.table)
    if not table.exists():
        raise PipelineError(
            f"{settings.table.shown} does not exist: name a table, and its catalog if it has one"
        )
    done = table.compact(settings.target_bytes)
    facts: dict[str, Fact] = {"files_merged": done.merged, "files_written": done.written}
    if settings.expire_s is not None:
        expired = table.expire(settings.expire_s, SystemClock().wall_ms())
        if expired.snapshots is not None:
            facts["snapshots_expired"] = expired.snapshots
        facts["files_removed"] = expired.files
    return Summary(f"compact {settings.table.shown}", facts)
