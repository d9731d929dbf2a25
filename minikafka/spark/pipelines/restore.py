"""The restore pipeline: writes archived Parquet files back to a topic, then verifies the topic.

Records, timestamps, partitions and order are kept. Offsets change if the archive has gaps or the topic is
not new, so the result maps old offsets to new offsets. Invariant: `ok` means that each partition was read
back from the topic and has the same digest as the archived partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client
from minikafka.client.administration.results import Resource, ResourceType
from minikafka.client.login import Connector
from minikafka.runtime.clock import SystemClock
from minikafka.spark.key_stores import prepared
from minikafka.spark.option_map import SERVERS
from minikafka.spark.parquet.archive_directory import ArchiveDirectory, file_name, gaps
from minikafka.spark.parquet.archive_load import RestoreTask, VerifyTask, load, verify
from minikafka.spark.pipelines.archive import listed_tiles
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.session.report import Report, Summary, Table
from minikafka.spark.pipelines.times import date_of, printed
from minikafka.spark.sink import options as sink_options
from minikafka.spark.sink.options import TOPIC
from minikafka.spark.source import planning
from minikafka.spark.source.options import Mode, ReadOptions, parse
from minikafka.spark.source.positions import Positions
from minikafka.spark.source.ranges import OffsetRange
from minikafka.spark.source.subscription import SUBSCRIBE
from minikafka.spark.workers import run_tasks

_BATCH_BYTES: Final = str(512 << 10)
"""Half of Kafka's default `max.message.bytes`. Large, because each partition has only one batch in flight."""
_RETENTION: Final = "retention.ms"


@dataclass(frozen=True)
class RestoreSettings:
    """The settings of a restore. `to`: the target topic. `append`: allow a target topic that holds records."""

    servers: str
    directory: str
    topic: str
    to: str
    append: bool = False
    compression: str = "none"
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options of the store, if `directory` is a URI. They may be secrets."""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options that protect connections."""
    connector: Connector | None = field(default=None, repr=False)
    """How the client that asks for the settings of the topic connects; None: in the clear, without login."""

    def archive(self) -> ArchiveDirectory:
        """Return the archive."""
        return ArchiveDirectory(self.directory, self.storage)

    def read_options(self) -> ReadOptions:
        """Return the options for reading the topic back. Lost records raise no error, but make the digests differ."""
        options = {
            SERVERS: self.servers,
            SUBSCRIBE: self.to,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "failOnDataLoss": "false",
            **self.security,
        }
        return prepared(parse(options, Mode.STREAM))


class _Source(NamedTuple):
    """The names of the files of one archived partition, in order."""

    partition: int
    files: tuple[str, ...]


def run(spark: SparkSession, settings: RestoreSettings, report: Report) -> Summary:
    """Write the archived records to the topic, read the topic back, and compare the digests."""
    sources = archived(settings)
    options = settings.read_options()
    with report.stage("plan"):
        first = _ends_of_target(settings, options, sources)
        warnings = _warnings(settings, sources)
    for text in warnings:
        report.note(f"warning: {text}")
    works = [_load(settings, options, source, first) for source in sources]
    with report.stage(f"restore {settings.to}"):
        written = run_tasks(spark, load, works)
    with report.stage(f"verify {settings.to}"):
        checks = [
            VerifyTask(options, OffsetRange(work.target, work.first, work.first + found["records"]))
            for work, found in zip(works, written, strict=True)
        ]
        read = run_tasks(spark, verify, checks)
        ends = planning.latest_positions(options, {})
    return _summary(settings, works, written, read, ends, warnings)


def archived(settings: RestoreSettings) -> list[_Source]:
    """Return the files of each archived partition. Raises `PipelineError` if the archive is not complete."""
    return _sources(settings.archive(), settings.topic)


def _sources(directory: ArchiveDirectory, topic: str) -> list[_Source]:
    """Return the files of each partition. Raises `PipelineError` if the archive is not complete."""
    topics = directory.topics()
    if not topics:
        text = (
            f"{directory.url} is no archive: name a directory that `pipeline archive` has written"
        )
        raise PipelineError(text)
    if topic not in topics:
        raise PipelineError(f"the archive {directory.url} holds {', '.join(topics)}, not {topic}")
    runs = directory.runs()
    sources = []
    for partition in _partitions(directory, topic, runs):
        tp = TopicPartition(topic, partition)
        tiles = directory.tiles(tp)
        known = listed_tiles(runs, tp, "lost")
        listed = listed_tiles(runs, tp, "files")
        edges = [*tiles, *listed]
        if not edges:
            continue
        start, end = min(tile.start for tile in edges), max(tile.end for tile in edges)
        if missing := gaps([*tiles, *known], start, end):
            names = ", ".join(f"{tile.start} to {tile.end - 1}" for tile in missing)
            text = f"the archive {directory.url} lacks the offsets {names} of {tp}"
            raise PipelineError(f"{text}: a file was removed, or `archive` has not finished")
        sources.append(_Source(partition, tuple(file_name(tp, tile) for tile in tiles)))
    if not sources:
        raise PipelineError(f"the archive {directory.url} has no files of {topic}")
    return sources


def _partitions(
    directory: ArchiveDirectory, topic: str, runs: Sequence[dict[str, Any]]
) -> list[int]:
    """Return the partitions that have a folder, or had one when a run listed its files, sorted."""
    listed = {
        entry["partition"] for facts in runs for entry in facts["files"] if entry["topic"] == topic
    }
    return sorted(listed.union(directory.partitions(topic)))


def _ends_of_target(
    settings: RestoreSettings, options: ReadOptions, sources: Sequence[_Source]
) -> Positions:
    """Return the ends of the target topic's partitions.

    Raises `PipelineError` if the target topic does not exist, has too few partitions, or is not empty and
    `append` is not set.
    """
    needed = sources[-1].partition + 1
    try:
        first = planning.first_positions(options)
    except KafkaError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        text = f"no topic {settings.to}: minikafka topics create {settings.to}"
        raise PipelineError(f"{text} --partitions {needed}") from error
    latest = planning.latest_positions(options, {})
    if len(latest) < needed:
        raise PipelineError(
            f"the topic {settings.to} has {len(latest)} partitions, the archived one had {needed}:"
            f" minikafka topics alter {settings.to} --partitions {needed}"
        )
    held = sum(latest[tp].offset - first[tp].offset for tp in latest)
    if held and not settings.append:
        text = f"the topic {settings.to} is not empty: it holds {held:,} offsets"
        text += "; restore to a new topic, or give --append to write after them"
        raise PipelineError(f"{text} (an interrupted restore leaves an incomplete copy)")
    return latest


def _warnings(settings: RestoreSettings, sources: Sequence[_Source]) -> list[str]:
    """Return a warning for each setting of the target topic that may remove restored records.

    Raises `PipelineError` if the target topic replaces record timestamps with the append time.
    """
    found = topic_settings(settings)
    if found.get("message.timestamp.type") == "LogAppendTime":
        text = f"the topic {settings.to} replaces record timestamps: minikafka topics alter"
        raise PipelineError(f"{text} {settings.to} --config message.timestamp.type=CreateTime")
    warnings = []
    oldest, kept_ms = _oldest(settings.archive(), sources), int(found.get(_RETENTION) or -1)
    now_ms = SystemClock().wall_ms()
    if oldest is not None and 0 <= kept_ms < now_ms - oldest // 1000:
        date = date_of(oldest)
        since = f"time {printed(oldest)}" if date is None else date.date().isoformat()
        warnings.append(
            f"records since {since} are older than {_RETENTION}={kept_ms} of {settings.to}, which"
            f" soon deletes them: minikafka topics alter {settings.to} --config {_RETENTION}=-1"
        )
    if "compact" in (found.get("cleanup.policy") or ""):
        warnings.append(
            f"{settings.to} is compacted: if that removes records before they are read back, the"
            " check fails; restore with cleanup.policy=delete and set compact afterwards"
        )
    return warnings


def topic_settings(settings: RestoreSettings) -> dict[str, str | None]:
    """Return the settings of the target topic by name. Raises KafkaError."""
    topic = settings.to

    async def ask() -> dict[str, str | None]:
        async with Client(settings.servers, connector=settings.connector) as client:
            resource = Resource(ResourceType.TOPIC, topic)
            found = (await client.admin.describe_configs([resource]))[resource]
            if not found.outcome.ok:
                raise KafkaError(found.outcome.code, f"{topic}: {found.outcome.reason}")
            return {entry.name: entry.value for entry in found.entries}

    return asyncio.run(ask())


def _oldest(directory: ArchiveDirectory, sources: Sequence[_Source]) -> int | None:
    """Return the smallest timestamp in the Parquet files, from the statistics in the file footers.

    It is in Unix microseconds: a record's timestamp may lie outside the years of a datetime.
    """
    found = []
    for source in sources:
        for name in source.files:
            with directory.files.open(name) as file:
                metadata = pq.read_metadata(file)
            column = metadata.schema.to_arrow_schema().get_field_index("timestamp")
            groups = (metadata.row_group(index) for index in range(metadata.num_row_groups))
            found += [_least(group, "timestamp") for group in groups if column >= 0]
    return min(found, default=None)


def _least(group: Any, column: str) -> int:
    chunks = (group.column(index) for index in range(group.num_columns))
    (chunk,) = (chunk for chunk in chunks if chunk.path_in_schema == column)
    return int(chunk.statistics.min_raw)


def _load(
    settings: RestoreSettings, options: ReadOptions, source: _Source, first: Positions
) -> RestoreTask:
    target = TopicPartition(settings.to, source.partition)
    write = sink_options.parse(
        {
            SERVERS: settings.servers,
            TOPIC: settings.to,
            "kafka.compression.type": settings.compression,
            "kafka.batch.size": _BATCH_BYTES,
            **settings.security,
        }
    )
    start = first[target].offset
    directory = settings.archive().url
    return RestoreTask(
        options, prepared(write), target, directory, source.files, start, settings.storage
    )


def _summary(
    settings: RestoreSettings,
    works: Sequence[RestoreTask],
    written: Sequence[dict[str, Any]],
    read: Sequence[dict[str, Any]],
    ends: Positions,
    warnings: Sequence[str],
) -> Summary:
    partitions, offsets = [], []
    for work, wrote, found in zip(works, written, read, strict=True):
        end = ends[work.target].offset
        is_equal = wrote["digest"] == found["digest"] and end == work.first + wrote["records"]
        number, records, digest = work.target.partition, wrote["records"], wrote["digest"]
        partitions.append((number, records, end - work.first, digest, found["digest"], is_equal))
        for start, stop, before, count in wrote["runs"]:
            new = work.first + before
            offsets.append((number, start, stop - 1, new, new + count - 1, count))
    ok = all(row[-1] for row in partitions)
    facts = {
        "records": sum(row[1] for row in partitions),
        "verified": ok,
        **({"warning": "; ".join(warnings)} if warnings else {}),
    }
    columns = ("partition", "archived", "restored", "archived_digest", "restored_digest", "equal")
    mapping = ("partition", "old_first", "old_last", "new_first", "new_last", "records")
    tables = (
        Table("partitions", columns, tuple(partitions)),
        Table("offsets", mapping, tuple(offsets)),
    )
    return Summary(f"restore of {settings.topic} to {settings.to}", facts, tables, ok)
