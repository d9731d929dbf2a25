"""What a topic requires of the records in a produced batch, and the records of a batch that break these rules.

A refused batch names its bad records, so that the application learns which ones to mend (KIP-467). The texts are those
of Kafka's LogValidator.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from minikafka.base.config import TopicConfig
from minikafka.base.config.keys import LONG_MAX
from minikafka.base.errors import ErrorCode
from minikafka.kafka.records.header import NO_TIMESTAMP
from minikafka.kafka.records.inflate import GZIP, LZ4, NONE, SNAPPY, ZSTD

KEEP: Final = -1
"""Value of `RecordRules.codec` that keeps the producer's codec; smaller than every codec."""
_CODECS: Final = {
    "producer": KEEP,
    "uncompressed": NONE,
    "gzip": GZIP,
    "snappy": SNAPPY,
    "lz4": LZ4,
    "zstd": ZSTD,
}
LISTED_MAX: Final = 1_000
"""Maximum number of records that one response names. The check of a batch ends when it has found so many."""
_SHOWN: Final = 3
"""Number of records in the message about the whole batch."""
_INVALID_RECORD: Final = int(ErrorCode.INVALID_RECORD)
_INVALID_TIMESTAMP: Final = int(ErrorCode.INVALID_TIMESTAMP)

Span: TypeAlias = tuple[int, int]
"""The earliest and the latest timestamp that a record may have; NO_TIMESTAMP is always allowed."""


class RecordRules(NamedTuple):
    """The requirements of a topic for batches: size, keys (if compacted), codec, compression level, timestamps.

    `distances`: how far (ms) timestamps may lie before and after the time of the append; None: no limit.
    `log_append_time`: the timestamp is that of the append.
    """

    size_max: int
    needs_keys: bool = False
    codec: int = KEEP
    level: int | None = None
    is_demanding: bool = False
    """True if the records must be read even if `minikafka.records.check.enable` is false."""
    distances: tuple[int, int] | None = None
    log_append_time: bool = False


def rules_of(config: TopicConfig) -> RecordRules:
    """Return the rules for the batches of a topic with these settings."""
    codec = _CODECS[config.compression_type]
    levels = {
        GZIP: config.compression_gzip_level,
        LZ4: config.compression_lz4_level,
        ZSTD: config.compression_zstd_level,
    }
    needs_keys = "compact" in config.cleanup_policy
    distances = (
        _distance(config, config.message_timestamp_before_max_ms),
        _distance(config, config.message_timestamp_after_max_ms),
    )
    log_append_time = config.message_timestamp_type == "LogAppendTime"
    is_limited = distances != (LONG_MAX, LONG_MAX) and not log_append_time
    return RecordRules(
        config.max_message_bytes,
        needs_keys,
        codec,
        levels.get(codec),
        needs_keys or codec != KEEP or is_limited,
        distances if is_limited else None,
        log_append_time,
    )


def _distance(config: TopicConfig, distance: int) -> int:
    """Return the maximum distance of a timestamp in one direction.

    If the topic does not set `distance`, return the limit of the older key, which applies to both directions.
    """
    return config.message_timestamp_difference_max_ms if distance == LONG_MAX else distance


class RecordErrors:
    """The bad records of one batch, in their order. `span`: the earliest and the latest timestamp that is allowed.

    Without a `span`, every record has the wrong timestamp type or lacks a key.
    """

    __slots__ = ("_rows", "_span", "code")

    def __init__(self, span: Span | None) -> None:
        self._rows: list[tuple[int, int | None]] = []
        """(index in the batch, timestamp), or None as the timestamp if the key is missing."""
        self._span = span
        self.code = _INVALID_RECORD
        """The error code of the batch."""

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        """True if `LISTED_MAX` records are listed: the check of the batch ends."""
        return len(self._rows) >= LISTED_MAX

    def add_without_key(self, index: int) -> None:
        """Add a record without a key for a compacted topic."""
        self._rows.append((index, None))

    def add_timestamp(self, index: int, timestamp: int = NO_TIMESTAMP) -> None:
        """Add a record whose timestamp is outside of the span, or whose batch has the wrong timestamp type."""
        self._rows.append((index, timestamp))
        self.code = _INVALID_TIMESTAMP

    def limit(self, count: int) -> None:
        """Keep at most the first `count` records."""
        del self._rows[count:]

    def texts(self, partition: str) -> tuple[str, list[tuple[int, str]]]:
        """Return the message about the batch, and (index, message) of each record. `partition`: such as "topic-0"."""
        errors = [(index, self._text(index, time, partition)) for index, time in self._rows]
        if self.code == _INVALID_TIMESTAMP:
            return "One or more records have been rejected due to invalid timestamp", errors
        shown = ", ".join(
            f"RecordError(batchIndex={index}, message='{text}')" for index, text in errors[:_SHOWN]
        )
        return (
            f"One or more records have been rejected due to {len(errors)} record errors in total, and only showing "
            f"the first three errors at most: [{shown}]"
        ), errors

    def _text(self, index: int, timestamp: int | None, partition: str) -> str:
        if timestamp is None:
            return (
                f"Compacted topic cannot accept message without key in topic partition {partition}"
            )
        if self._span is None:
            return (
                f"Invalid timestamp type in message with offset {index}. Producer should not set timestamp type to "
                "LogAppendTime."
            )
        first, last = self._span
        return (
            f"Timestamp {timestamp} of message with offset {index} is out of range. The timestamp should be within "
            f"[{first}, {last}]"
        )
