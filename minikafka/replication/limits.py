"""A topic's limits for the batches of producers: size, and the distance of timestamps from the clock."""

from __future__ import annotations

from typing import Final

from minikafka.base.config import TopicConfig
from minikafka.base.errors import ErrorCode
from minikafka.base.keys import LONG_MAX
from minikafka.record.batch import Header, check_timestamps

_TOO_LARGE: Final = int(ErrorCode.MESSAGE_TOO_LARGE)


def unchecked_bytes(config: TopicConfig) -> int:
    """Return the size up to which a batch is within all limits; -1 if every batch must be checked."""
    distances = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    any_time = _takes_append_time(config) or distances == (LONG_MAX, LONG_MAX)
    return config.max_message_bytes if any_time else -1


def check_limits(config: TopicConfig, batch: memoryview, header: Header, wall_ms: int) -> int:
    """Return the error code for a batch that exceeds a limit at this time (Unix ms), 0 if it exceeds none."""
    if not _takes_append_time(config):
        earliest = wall_ms - config.message_timestamp_before_max_ms
        latest = wall_ms + config.message_timestamp_after_max_ms
        error = check_timestamps(batch, header, earliest, latest)
        if error:
            return error
    return _TOO_LARGE if len(batch) > config.max_message_bytes else 0


def _takes_append_time(config: TopicConfig) -> bool:
    return config.message_timestamp_type == "LogAppendTime"
