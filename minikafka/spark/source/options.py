"""The options of a read, with the names and rules of Spark's own Kafka source.

Invariant: the values of a `ReadOptions` do not contradict each other, and every accepted option has an effect
or is in `ReadOptions.ignored`. An unknown or unsupported option raises a `ConfigError` that says what to do.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from minikafka.base.config.client import ClientConfig
from minikafka.base.errors import ConfigError
from minikafka.base.known_cluster import Address
from minikafka.spark.option_map import IGNORED_BY_READS, SERVERS, OptionMap
from minikafka.spark.source import bounds, subscription
from minikafka.spark.source.bounds import Bound
from minikafka.spark.source.subscription import ASSIGN, PATTERN, SUBSCRIBE, Subscription
from minikafka.spark.wire.protocol import EARLIEST, LATEST, Isolation

GROUP: Final = "commitOffsetsToGroup"

DEFAULTS: Final[dict[str, str | None]] = {
    SERVERS: None,
    SUBSCRIBE: None,
    PATTERN: None,
    ASSIGN: None,
    **dict.fromkeys(bounds.STARTING),
    **dict.fromkeys(bounds.ENDING),
    "startingOffsetsByTimestampStrategy": "error",
    "maxOffsetsPerTrigger": None,
    "minOffsetsPerTrigger": None,
    "maxTriggerDelay": "15m",
    "minPartitions": None,
    "maxRecordsPerPartition": None,
    "maxTasks": None,
    GROUP: None,
    "includeKey": "true",
    "includeValue": "true",
    "includeHeaders": "false",
    "pushFilters": "false",
    "failOnDataLoss": "true",
    "failOnTimestampOverflow": "true",
    "kafkaConsumer.pollTimeoutMs": "120000",
    "kafka.client.id": "minikafka-spark",
    "kafka.isolation.level": "read_uncommitted",
    "kafka.request.timeout.ms": "10000",
    "kafka.default.api.timeout.ms": "60000",
    "kafka.max.partition.fetch.bytes": None,
    "kafka.check.crcs": "true",
}
"""Every option and its default value. None: the option is required, or has no default.

Kafka's consumer waits 30 s for a response. The default here is 10 s, which is long enough for the election of
a new leader.
"""

MEANINGS: Final[dict[str, str]] = {
    SERVERS: "Required: `host:port,…` of one or more brokers.",
    SUBSCRIBE: "Topics, separated by commas. One of `subscribe`, `subscribePattern` and `assign` "
    "is required.",
    PATTERN: "A regular expression of Python; topics are read if a part of their name "
    "matches. Internal topics never match.",
    ASSIGN: 'Partitions, `{"topic":[0,1]}`.',
    "startingTimestamp": "Unix milliseconds: start at the first record at or after this time.",
    "startingOffsetsByTimestamp": "The same, with a time for each partition: "
    '`{"topic":{"0":1700000000000}}`.',
    "startingOffsets": "`earliest`, `latest` (only for a stream), or JSON that names every "
    'partition: `{"topic":{"0":23,"1":-2}}`. -2 is the earliest offset; -1 is the latest (only for a '
    "stream). The default is `earliest`, of a stream `latest`.",
    "startingOffsetsByTimestampStrategy": "What to do if a partition has no record at or after the "
    "starting time: `error` fails, `latest` starts at the end of the partition.",
    "endingTimestamp": "Unix milliseconds: end before the first record at or after this time.",
    "endingOffsetsByTimestamp": "The same, with a time for each partition.",
    "endingOffsets": "`latest`, or JSON as for `startingOffsets`; -1 is the latest offset, -2 is not "
    "allowed. The default is `latest`.",
    "maxOffsetsPerTrigger": "Approximate maximum number of offsets in a micro-batch.",
    "minOffsetsPerTrigger": "Number of offsets for which a micro-batch waits, except the first one of a run.",
    "maxTriggerDelay": "Maximum time for which a micro-batch waits for `minOffsetsPerTrigger`; units "
    "`ms`, `s`, `m`, `h`, `d`.",
    "minPartitions": "Approximate number of tasks to plan if there would be fewer.",
    "maxRecordsPerPartition": "Maximum number of offsets of one task.",
    "maxTasks": "Maximum number of tasks, unless `maxRecordsPerPartition` needs more. Without this "
    "option there are two tasks per core, one for few offsets, more for many.",
    GROUP: "A consumer group whose offsets show what a stream [has read](spark.md#the-lag-of-a-stream). No consumer "
    "may be a member of the group.",
    "includeKey": "`false`: no column `key`.",
    "includeValue": "`false`: no column `value`.",
    "includeHeaders": "A column `headers` of (key, value) pairs.",
    "pushFilters": "`true`: a batch read fetches only offsets that the filters of the query may "
    "select. Read [the limits](spark.md#filters) first.",
    "failOnDataLoss": "`true`: fail if records that should be read are no longer in the log; "
    "`false`: log a warning and continue.",
    "failOnTimestampOverflow": "`true`: fail at a record's timestamp that does not fit into 64 bits "
    "of microseconds; `false`: the timestamp is null.",
    "kafka.isolation.level": "`read_committed` skips the records of aborted transactions, and ends "
    "before the first open transaction.",
    "kafkaConsumer.pollTimeoutMs": "Maximum time for which a task waits without a new record. "
    "Offsets beyond the end of the log then count as lost.",
    "kafka.client.id": "The client id in requests to brokers.",
    "kafka.request.timeout.ms": "Maximum time to wait for the response of a broker.",
    "kafka.default.api.timeout.ms": "Maximum time to find leaders and offsets when a batch or "
    "micro-batch is planned.",
    "kafka.max.partition.fetch.bytes": "Maximum number of bytes in one Fetch response; a larger "
    "batch is still read. The default is `4194304`, without values `16777216`.",
    "kafka.check.crcs": "Check the CRC-32C of every batch; a task fails if a checksum is wrong.",
}
"""The meaning of every option, for docs/spark-options.md."""

_REFUSED: Final = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.enable.auto.commit": "the checkpoint keeps the offsets; remove it",
    "kafka.key.deserializer": "keys are binary; decode them in the query",
    "kafka.value.deserializer": "values are binary; decode them in the query",
    "kafka.interceptor.classes": "there is no Java consumer; remove it",
    "kafka.bootstrap.controllers": f"name brokers in {SERVERS}",
}
"""The options that a read refuses, each with advice. Spark's Kafka connector refuses these options too."""
_FETCH_BYTES: Final = 4 << 20
_FETCH_BYTES_WITHOUT_VALUES: Final = 16 << 20
_RETRIES: Final = "requests for offsets are repeated until kafka.default.api.timeout.ms has passed"
_IGNORED: Final = IGNORED_BY_READS | {
    "groupIdPrefix": "this data source belongs to no consumer group",
    "fetchOffset.numRetries": _RETRIES,
    "fetchOffset.retryIntervalMs": _RETRIES,
    "topic": "it is an option of the sink",
    "originHeader": "it is an option of the sink",
    "createTopics": "a read creates no topic",
}
_STREAM_ONLY: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    GROUP,
)
_UNITS_MS: Final = {
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


class Mode(Enum):
    """The kind of a read: batch or stream. Some options are allowed in only one mode."""

    BATCH = "batch read"
    STREAM = "stream"


@dataclass(frozen=True)
class ReadOptions:
    """The parsed options of a read. Times in milliseconds."""

    servers: tuple[Address, ...]
    subscription: Subscription
    starting: Bound
    ending: Bound
    missing_time_is_latest: bool
    """Start at the end of a partition that has no record at or after the starting time."""
    max_offsets: int | None
    """Maximum number of offsets in one micro-batch, over all partitions."""
    min_offsets: int | None
    """A micro-batch waits for this number of offsets, but at most `max_delay_ms`."""
    max_delay_ms: int
    min_partitions: int | None
    max_records: int | None
    """Maximum number of offsets in one task."""
    max_tasks: int | None
    """Maximum number of tasks, unless `max_records` needs more. None: the number depends on Spark's cores."""
    group: str | None
    """The consumer group to which a stream commits what it has read."""
    include_key: bool
    include_value: bool
    include_headers: bool
    push_filters: bool
    """Turn the filters of a batch query into offset ranges."""
    fail_on_data_loss: bool
    fail_on_far_times: bool
    """Fail at a timestamp that Spark cannot hold. If false, the timestamp is null."""
    client_id: str
    isolation: Isolation
    request_timeout_ms: int
    planning_timeout_ms: int
    """Maximum time to find leaders and offsets when a batch is planned."""
    poll_timeout_ms: int
    """Maximum time for which a task waits for the next record."""
    fetch_bytes: int
    check_crcs: bool
    checkpoint: str | None
    """The checkpoint of the query, if the user also gives it to the source."""
    security: ClientConfig
    """How connections are encrypted, and with what the client logs in."""
    ignored: Mapping[str, str]
    """The options that have no effect in this read, each with what happens instead."""


def parse(given: Mapping[str, str], mode: Mode | None = None) -> ReadOptions:
    """Return the options of a read from Spark's option map. Raises `ConfigError`.

    `mode`: batch or stream. None when Spark asks for the columns, because Spark chooses the mode later. Rules
    that differ between batches and streams are then not checked.
    """
    options = OptionMap(given, DEFAULTS, _REFUSED, _IGNORED)
    if mode is not None:
        _check_mode(options, mode)
    selected = subscription.parse(options)
    starting, ending = _bounds(options, selected, mode)
    strategy = options.choice("startingOffsetsByTimestampStrategy", "error", "latest")
    found = ReadOptions(
        servers=options.servers(),
        subscription=selected,
        starting=starting,
        ending=ending,
        missing_time_is_latest=strategy == "latest",
        max_offsets=options.optional_positive("maxOffsetsPerTrigger"),
        min_offsets=options.optional_positive("minOffsetsPerTrigger"),
        max_delay_ms=_duration_ms("maxTriggerDelay", options.text("maxTriggerDelay")),
        min_partitions=options.optional_positive("minPartitions"),
        max_records=options.optional_positive("maxRecordsPerPartition"),
        max_tasks=options.optional_positive("maxTasks"),
        group=options.optional(GROUP),
        include_key=options.boolean("includeKey"),
        include_value=options.boolean("includeValue"),
        include_headers=options.boolean("includeHeaders"),
        push_filters=options.boolean("pushFilters"),
        fail_on_data_loss=options.boolean("failOnDataLoss"),
        fail_on_far_times=options.boolean("failOnTimestampOverflow"),
        client_id=options.text("kafka.client.id"),
        isolation=_isolation(options),
        request_timeout_ms=options.positive("kafka.request.timeout.ms"),
        planning_timeout_ms=options.positive("kafka.default.api.timeout.ms"),
        poll_timeout_ms=options.positive("kafkaConsumer.pollTimeoutMs"),
        fetch_bytes=_fetch_bytes(options),
        check_crcs=options.boolean("kafka.check.crcs"),
        checkpoint=options.checkpoint,
        security=options.security,
        ignored=options.ignored,
    )
    _check_limits(found)
    return found


def _bounds(options: OptionMap, selected: Subscription, mode: Mode | None) -> tuple[Bound, Bound]:
    """Return where the read starts and ends."""
    first = LATEST if mode is Mode.STREAM else EARLIEST
    no_start, no_end = (LATEST, EARLIEST) if mode is Mode.BATCH else (None, None)
    return (
        bounds.parse(options, bounds.STARTING, selected, default=first, refused=no_start),
        bounds.parse(options, bounds.ENDING, selected, default=LATEST, refused=no_end),
    )


def _check_limits(found: ReadOptions) -> None:
    if found.max_offsets and found.min_offsets and found.min_offsets > found.max_offsets:
        raise ConfigError(
            f"minOffsetsPerTrigger {found.min_offsets} is above maxOffsetsPerTrigger {found.max_offsets}"
        )
    if found.max_tasks and found.min_partitions and found.min_partitions > found.max_tasks:
        raise ConfigError(
            f"minPartitions {found.min_partitions} is above maxTasks {found.max_tasks}"
        )


def _check_mode(options: OptionMap, mode: Mode) -> None:
    if mode is Mode.BATCH:
        for name in _STREAM_ONLY:
            options.ignore(name, "a batch read has no micro-batches")
        return
    for name in bounds.ENDING:
        if options.given(name):
            raise ConfigError(f"option {name} has no effect on a {mode.value}: remove it")
    options.ignore("pushFilters", "Spark offers the filters of a stream to no Python data source")
    if not options.given("minOffsetsPerTrigger"):
        options.ignore("maxTriggerDelay", "without minOffsetsPerTrigger, no micro-batch waits")


def _fetch_bytes(options: OptionMap) -> int:
    """Return the maximum size of a Fetch response. Without values, a large response takes little time to decode."""
    name = "kafka.max.partition.fetch.bytes"
    if options.optional(name):
        return options.positive(name)
    return _FETCH_BYTES if options.boolean("includeValue") else _FETCH_BYTES_WITHOUT_VALUES


def _isolation(options: OptionMap) -> Isolation:
    words = [level.name.lower() for level in Isolation]
    return Isolation[options.choice("kafka.isolation.level", *words).upper()]


def _duration_ms(option: str, value: str) -> int:
    match = re.fullmatch(r"([0-9]{1,9})\s*([a-z]+)", value.lower())
    if match is None or match[2] not in _UNITS_MS:
        raise ConfigError(
            f"option {option} must be a number with a unit, such as 30s or 15m, not {value!r}"
        )
    return int(match[1]) * _UNITS_MS[match[2]]
