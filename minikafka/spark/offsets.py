"""The offsets that a batch read covers: one range per partition, fixed when the job is planned.

Invariant: 0 <= start < end <= high watermark at planning time for every range, so a retried task
reads the same records.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from minikafka.base.errors import ConfigError, ErrorCode, KafkaError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.spark.deadline import Deadline
from minikafka.spark.leaders import Leaders, Unreachable
from minikafka.spark.options import Offsets, ReadOptions
from minikafka.spark.protocol import EARLIEST, LATEST

logger = logging.getLogger(__name__)

_NEW_TOPIC_S: Final = 5.0
"""Retry an unknown topic for this long: a new topic may not have reached every broker's metadata yet."""


class DataLost(MinikafkaError):
    """Requested offsets are no longer, or not yet, in the log (`failOnDataLoss`)."""


@dataclass(frozen=True)
class OffsetRange:
    """Offsets [start, end) of one partition."""

    tp: TopicPartition
    start: int
    end: int


def connect(options: ReadOptions, first: int = 0) -> Leaders:
    """Return a client without connections, which the caller must close.

    `first`: the index (modulo their number) of the server to ask first, so that the tasks of a job
    do not all start with the same one.
    """
    first %= len(options.servers)
    servers = [*options.servers[first:], *options.servers[:first]]
    return Leaders(servers, options.client_id, options.request_timeout_ms / 1000)


def plan(options: ReadOptions) -> list[OffsetRange]:
    """Ask the cluster for partitions and their ends; return the ranges that are not empty.

    Raises `Unreachable`, `DataLost`, `KafkaError`, and `ConfigError` for offsets that do not fit.
    """
    leaders = connect(options)
    try:
        deadline = Deadline(options.planning_timeout_ms / 1000)
        partitions = _partitions(leaders, options, deadline)
        _check_named("startingOffsets", options.starting, partitions)
        _check_named("endingOffsets", options.ending, partitions)
        earliest = leaders.list_offsets(partitions, EARLIEST, deadline)
        latest = leaders.list_offsets(partitions, LATEST, deadline)
    finally:
        leaders.close()
    ranges = [_range(options, tp, earliest[tp], latest[tp]) for tp in partitions]
    return [found for found in ranges if found.start < found.end]


def _partitions(leaders: Leaders, options: ReadOptions, deadline: Deadline) -> list[TopicPartition]:
    """Return all partitions of the topics, in order; wait briefly for topics that were just created."""
    patience = Deadline(min(_NEW_TOPIC_S, options.planning_timeout_ms / 1000))
    while True:
        try:
            leaders.refresh(options.topics)
            partitions = leaders.partitions(options.topics)
            missing = sorted(set(options.topics) - {tp.topic for tp in partitions})
            if not missing:
                return partitions
            if not patience.wait_to_retry():
                raise _unknown(missing)
        except Unreachable:
            if not deadline.wait_to_retry():
                raise


def _unknown(topics: Sequence[str]) -> KafkaError:
    text = f"{', '.join(topics)}: no such topic; correct option subscribe, or create it"
    return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)


def _check_named(option: str, offsets: Offsets, partitions: list[TopicPartition]) -> None:
    """Raise `ConfigError` unless offsets given as JSON name exactly the existing partitions
    (Spark's rule).
    """
    if isinstance(offsets, int):
        return
    if missing := [str(tp) for tp in partitions if tp not in offsets]:
        raise ConfigError(
            f"option {option} must name every partition; missing: {', '.join(missing)}"
        )
    if extra := sorted(str(tp) for tp in offsets.keys() - set(partitions)):
        raise ConfigError(f"option {option} names partitions that do not exist: {', '.join(extra)}")


def _range(options: ReadOptions, tp: TopicPartition, earliest: int, latest: int) -> OffsetRange:
    start = _offset(options.starting, tp, earliest, latest)
    end = _offset(options.ending, tp, earliest, latest)
    if start > end and isinstance(options.starting, dict) and isinstance(options.ending, dict):
        raise ConfigError(f"startingOffsets {start} of {tp} is beyond its endingOffsets {end}")
    for offset in (start, end):
        if not earliest <= offset <= latest:
            text = f"offset {offset} of {tp} is not in the log, which holds {earliest} to {latest}"
            report_loss(text, fail=options.fail_on_data_loss)
    return OffsetRange(tp, max(start, earliest), min(end, latest))


def _offset(offsets: Offsets, tp: TopicPartition, earliest: int, latest: int) -> int:
    wanted = offsets if isinstance(offsets, int) else offsets[tp]
    return {EARLIEST: earliest, LATEST: latest}.get(wanted, wanted)


def report_loss(text: str, *, fail: bool) -> None:
    """Report lost offsets according to `failOnDataLoss`: raise `DataLost`, or log a warning."""
    if fail:
        raise DataLost(f"{text}; set failOnDataLoss to false to read the rest")
    logger.warning("%s", text)
