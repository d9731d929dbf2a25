"""The copy pipeline: copies the records of topics, or the result of a query, to a topic of any cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from pyspark.sql import SparkSession

from minikafka.base.errors import ConfigError
from minikafka.spark.key_stores import prepared
from minikafka.spark.option_map import SERVERS
from minikafka.spark.pipelines.run import pipeline
from minikafka.spark.pipelines.run.definition import (
    Definition,
    SourceView,
    Step,
    TopicSink,
    source_defaults,
)
from minikafka.spark.pipelines.session.report import Report, Summary
from minikafka.spark.pipelines.streams.streams import AVAILABLE_NOW, Trigger
from minikafka.spark.sink.once.transaction import are_served
from minikafka.spark.sink.options import ONCE, ORIGIN, TOPIC, TRANSACTION_TIMEOUT, parse
from minikafka.spark.sink.routing import client

_UNCHANGED = "select key, value, headers, timestamp{partition} from source"
_TIMEOUT_MS: Final = "300000"
"""Maximum time to write a micro-batch. It may have a million large records, on a slow machine."""


@dataclass(frozen=True)
class CopySettings:
    """The settings of a copy. `sql`: a query over the view `source`; None copies the records unchanged."""

    topics: tuple[str, ...]
    to: str
    from_servers: str
    to_servers: str
    checkpoint: str
    sql: str | None = None
    keep_partitions: bool = False
    """Write each record to the partition with the number of its source partition. Only without `sql`."""
    origin_header: str | None = None
    compression: str = "none"
    trigger: Trigger = AVAILABLE_NOW
    skip_lost: bool = False
    """Continue after records that were deleted before they were read."""
    exactly_once: bool | None = None
    """Write each micro-batch in a transaction. None: if the brokers of the target serve transactions."""
    security: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options that protect connections to both clusters."""


def run(spark: SparkSession, settings: CopySettings, report: Report) -> Summary:
    """Copy the records that exist now and return the counts; with a trigger interval, copy until Ctrl-C."""
    if settings.exactly_once is None:
        settings = replace(settings, exactly_once=_can_be_exactly_once(settings))
    return pipeline.run(spark, definition_of(settings), report)


def _can_be_exactly_once(settings: CopySettings) -> bool:
    options = prepared(parse({SERVERS: settings.to_servers, **settings.security}))
    with client(options) as leaders:
        return are_served(leaders)


def definition_of(settings: CopySettings) -> Definition:
    """Return the pipeline of a copy. Raises ConfigError if a topic would be copied to itself."""
    if settings.to in settings.topics and settings.from_servers == settings.to_servers:
        raise ConfigError(f"{settings.to} would be copied to itself: name another topic with --to")
    reading = {SERVERS: settings.from_servers, "subscribe": ",".join(settings.topics)}
    reading |= source_defaults(settings.trigger) | {"includeHeaders": "true"}
    reading |= settings.security
    reading["failOnDataLoss"] = str(not settings.skip_lost).lower()
    writing = {SERVERS: settings.to_servers, TOPIC: settings.to, **settings.security}
    writing["kafka.compression.type"] = settings.compression
    if settings.exactly_once:
        writing |= {ONCE: "true", TRANSACTION_TIMEOUT: _TIMEOUT_MS}
    if settings.origin_header:
        writing[ORIGIN] = settings.origin_header
    unchanged = _UNCHANGED.format(partition=", partition" if settings.keep_partitions else "")
    return Definition(
        name=f"copy {', '.join(settings.topics)} to {settings.to}",
        sources=(SourceView("source", reading),),
        steps=(Step("result", settings.sql or unchanged),),
        sink=TopicSink(writing),
        trigger=settings.trigger,
        checkpoint=settings.checkpoint,
    )
