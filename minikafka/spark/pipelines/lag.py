"""The lag of consumer groups over time.

Lag is the log end offset minus the committed offset, as in `groups describe`. A partition without a committed
offset has no lag. The trend is the slope of a line fitted to the samples. A positive trend means that the
group falls behind.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from minikafka.base.errors import ConfigError
from minikafka.base.model import TopicPartition
from minikafka.client import Client
from minikafka.client.log_offsets import LATEST
from minikafka.client.login import Connector
from minikafka.runtime.clock import SystemClock
from minikafka.spark.pipelines import plot
from minikafka.spark.pipelines.plot import Chart, Series
from minikafka.spark.pipelines.session.failures import PipelineError
from minikafka.spark.pipelines.session.report import Bar, Report, Summary, Table
from minikafka.spark.pipelines.times import printed
from minikafka.spark.storage.locations import check_options
from minikafka.spark.storage.single_files import check_file, write_file

SUFFIXES: Final = (".parquet", ".jsonl")
_SCHEMA: Final = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("committed", pa.int64()),
        ("end", pa.int64()),
        ("lag", pa.int64()),
    ]
)
_COLUMNS: Final = (
    "time timestamp, group string, topic string, partition int, committed long, end long, lag long"
)
_OTHERS: Final = "others"
_NO_OFFSET: Final = "no committed offset"
_NO_END: Final = (
    "its partitions with a committed offset have no leader, or their topics were deleted"
)


@dataclass(frozen=True)
class LagSettings:
    """The groups to sample, the interval and the duration. A `duration_s` of 0 takes one sample.

    If `groups` is empty, a sample covers all groups that exist at its time. `output`: the file for the samples.
    `storage`: the options of the stores of `output` and `plot`, which may be secrets.
    `connector`: how to connect to the brokers; None: in the clear, without a login.
    """

    servers: str
    groups: tuple[str, ...] = ()
    duration_s: float = 0
    interval_s: float = 5
    output: str | None = None
    plot: str | None = None
    connector: Connector | None = None
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)

    def check(self) -> None:
        """Raise `ConfigError` if `output` or `plot` is invalid. Called before the first sample is taken."""
        if self.output and not self.output.endswith(SUFFIXES):
            raise ConfigError(
                f"the file of samples must end in {' or '.join(SUFFIXES)}, not {self.output!r}"
            )
        check_options((self.output, self.plot), self.storage)
        if self.output:
            check_file(self.output, self.storage)
        if self.plot:
            plot.check_path(self.plot, self.storage)


def run(spark: SparkSession, settings: LagSettings, report: Report) -> Summary:
    """Take the samples, write them, and return the lag per group and per partition."""
    settings.check()
    name = f"lag of {', '.join(settings.groups) or 'all groups'}"
    with report.stage(name):
        samples, without = asyncio.run(_samples(settings, report, name))
    table = pa.Table.from_pylist(samples, schema=_SCHEMA)
    if settings.output:
        write_file(settings.output, _encoded(table, settings.output), settings.storage)
    rows = [tuple(sample.values()) for sample in samples]
    frame = spark.createDataFrame(rows, _COLUMNS)
    with report.stage("summarise"):
        partitions, groups = _summarised(frame)
    facts: dict[str, Any] = {
        "samples": len({sample["time"] for sample in samples}),
        "groups": len(groups),
        "partitions": len(partitions),
    }
    if settings.output:
        facts["output"] = settings.output
    if settings.plot:
        plot.write(_picture(name, samples), settings.plot, settings.storage)
        facts["plot"] = settings.plot
    measures = ("samples", "mean_lag", "max_lag", "last_lag", "trend_per_minute")
    tables = [
        Table("by_group", ("group", *measures), groups),
        Table("by_partition", ("group", "topic", "partition", *measures), partitions),
    ]
    if without:
        tables.append(Table("groups_without_lag", ("group", "reason"), tuple(without.items())))
    return Summary(name, facts, tuple(tables))


async def _samples(
    settings: LagSettings, report: Report, name: str
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return one row per sample, group and partition, and for each group without a row the reason.

    Raises `PipelineError` if there is no row.
    """
    clock = SystemClock()
    found: list[dict[str, Any]] = []
    reasons: dict[str, str] = {}
    rounds = int(settings.duration_s / settings.interval_s) + 1
    async with Client(settings.servers, connector=settings.connector) as client:
        started = clock.now()
        for number in range(rounds):
            due = started + round(1_000 * number * settings.interval_s)
            await clock.sleep(max(due - clock.now(), 0))
            rows, without = await _sample(client, settings.groups, clock.wall_ms())
            found += rows
            reasons |= without
            report.stream(Bar(name, number + 1, rounds, f"{number + 1} of {rounds} samples"))
    report.stream_ended(name)
    if not found:
        if not settings.groups:
            raise PipelineError(
                "no group has a committed offset of a partition with a leader; let a consumer group commit first"
            )
        named = ", ".join(f"{group}: {reason}" for group, reason in reasons.items())
        raise PipelineError(f"{named}; name groups that `minikafka groups list` lists")
    measured = {row["group"] for row in found}
    return found, {group: reasons[group] for group in sorted(reasons.keys() - measured)}


async def _sample(
    client: Client, groups: Sequence[str], now_ms: int
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the rows of one sample, and for each group without a row the reason."""
    names = groups or [one.group for one in await client.groups.list_groups()]
    committed = {name: await client.groups.offsets(name) for name in names}
    ends = await _ends(client, {tp for offsets in committed.values() for tp in offsets})
    time = datetime.fromtimestamp(now_ms / 1000, UTC)
    rows = [
        {
            "time": time,
            "group": name,
            "topic": tp.topic,
            "partition": tp.partition,
            "committed": at.offset,
            "end": ends[tp],
            # After an unclean election the log may end below the committed offset.
            "lag": max(ends[tp] - at.offset, 0),
        }
        for name, offsets in committed.items()
        for tp, at in sorted(offsets.items())
        if tp in ends
    ]
    measured = {row["group"] for row in rows}
    without = {
        name: _NO_END if offsets else _NO_OFFSET
        for name, offsets in committed.items()
        if name not in measured
    }
    return rows, without


async def _ends(client: Client, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log end offsets. Partitions without a leader and partitions of deleted topics are left out."""
    if not partitions:
        return {}
    _, topics = await client.admin.describe(sorted({tp.topic for tp in partitions}))
    led = {
        TopicPartition(topic.name, number)
        for topic in topics
        for number, partition in topic.partitions.items()
        if partition.leader >= 0
    }
    wanted = dict.fromkeys(sorted(led & partitions), LATEST)
    return await client.log_offsets(wanted) if wanted else {}


def _encoded(table: pa.Table, output: str) -> bytes:
    """Return the samples in the format that the suffix of the file names."""
    if output.endswith(".parquet"):
        file = pa.BufferOutputStream()
        pq.write_table(table, file)
        return bytes(file.getvalue())
    micros = table.column("time").cast(pa.int64()).to_pylist()
    rows = zip(table.to_pylist(), micros, strict=True)
    lines = (json.dumps(row | {"time": printed(time)}) for row, time in rows)
    return "".join(f"{line}\n" for line in lines).encode()


def _summarised(frame: DataFrame) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the lag statistics per partition, and the lag statistics per group.

    The lag of a group is the sum over the group's partitions.
    """
    by_partition = _measured(frame, "group", "topic", "partition")
    sums = frame.groupBy("time", "group").agg(f.sum("lag").alias("lag"))
    return _rows(by_partition), _rows(_measured(sums, "group"))


def _measured(frame: DataFrame, *keys: str) -> DataFrame:
    minutes = f.col("time").cast("double") / 60
    return (
        frame.groupBy(*keys)
        .agg(
            f.count("lag").alias("samples"),
            f.round(f.avg("lag"), 3).alias("mean_lag"),
            f.max("lag").alias("max_lag"),
            f.max_by("lag", "time").alias("last_lag"),
            f.round(f.regr_slope("lag", minutes), 3).alias("trend_per_minute"),
        )
        .orderBy(*keys)
    )


def _rows(frame: DataFrame) -> tuple[tuple[Any, ...], ...]:
    return tuple(tuple(row) for row in frame.collect())


def _picture(name: str, samples: Sequence[dict[str, Any]]) -> Chart:
    """Return a picture of the lag of each group over time.

    If there are too many groups for one picture, the groups with the least lag are summed as `others`.
    """
    lags: dict[str, dict[datetime, int]] = {}
    for sample in samples:
        by_time = lags.setdefault(sample["group"], {})
        by_time[sample["time"]] = by_time.get(sample["time"], 0) + sample["lag"]
    ordered = sorted(lags, key=lambda group: (-max(lags[group].values()), group))
    kept = ordered if len(ordered) <= plot.SERIES_MAX else ordered[: plot.SERIES_MAX - 1]
    series = [Series(group, list(lags[group]), list(lags[group].values())) for group in kept]
    if rest := ordered[len(kept) :]:
        times = sorted({time for group in rest for time in lags[group]})
        sums = [sum(lags[group].get(time, 0) for group in rest) for time in times]
        series.append(Series(_OTHERS, times, sums))
    return Chart(name, "lag (records)", series)
