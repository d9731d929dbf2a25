"""The logs of all replicas in the log directories of brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path

from minikafka.base.model import TopicPartition
from minikafka.checks.isolation.logs import Stored, stored
from minikafka.checks.replicas import log_directories

Logs = dict[TopicPartition, dict[int, list[Stored]]]


def read_logs(
    directories: Iterable[str],
    topics: Sequence[str],
    ends: Mapping[TopicPartition, int] | None = None,
) -> Logs:
    """Return the logs of each partition by broker, up to the high watermark.

    `ends`: the high watermark of each partition; None: the highest one in the brokers' checkpoints. Raises
    PipelineError for a wrong directory, CorruptBatch for a damaged log.
    """
    found, segments = log_directories.find(log_directories.log_directories(directories), topics)
    limits = _checkpointed(found) if ends is None else ends
    logs: Logs = {}
    for (broker, *place), files in groupby(
        segments, lambda one: (one.broker, one.topic, one.partition)
    ):
        tp = TopicPartition(*place)
        end = limits.get(tp)
        own = logs.setdefault(tp, {})[broker] = []
        for file in files:
            entries = stored(Path(file.path).read_bytes(), tp)
            own += [entry for entry in entries if end is None or entry.offset < end]
    return logs


def _checkpointed(found: Iterable[log_directories.CheckedReplica]) -> dict[TopicPartition, int]:
    ends: dict[TopicPartition, int] = {}
    for replica in found:
        if replica.high_watermark is not None:
            tp = TopicPartition(replica.topic, replica.partition)
            ends[tp] = max(ends.get(tp, 0), replica.high_watermark)
    return ends
