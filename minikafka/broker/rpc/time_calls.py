"""Bodies of the calls with which a tool does what only time would do: compaction, retention, expiry, a later clock.

Invariant: a value returned by a `decode…` function has the declared types. All other bodies raise
KafkaError(INVALID_REQUEST).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.broker.rpc.fields import (
    INT64_MAX,
    Body,
    as_integer,
    as_map,
    as_row,
    as_rows,
    as_text,
    as_topic_partition,
)

COMPACT: Final = "compact"
"""Request: partitions with the offset that the high watermark must reach first, and a time limit. Response, for each
partition that the broker hosts: what compaction has removed, or the reason of a failure.
"""
EXPIRE: Final = "expire"
"""As `compact`, for retention."""
EXPIRE_GROUP: Final = "expire_group"
"""Request: a group. Response of its coordinator: the offsets that have expired."""
ADVANCE_CLOCK: Final = "advance_clock"
"""Request: by how much the wall clock is to be ahead of the machine's in all. Response: what became due."""
CALLS: Final = frozenset({COMPACT, EXPIRE, EXPIRE_GROUP, ADVANCE_CLOCK})
ADVANCED_MAX_MS: Final = 100 * 365 * 86_400_000
"""A hundred years: later times have no place in the formats of some clients."""
_WAIT_MAX_MS: Final = 3_600_000
_GROUP: Final = re.compile(r"(?s).{0,32767}")
_REASON: Final = re.compile(r"(?s).{0,10000}")


class PartitionGone(NamedTuple):
    """What compaction or retention has removed from one replica. `failure`: why it did not; "" if it did.

    `end_offset`: the offset up to which a log is compacted; -1 after retention.
    """

    tp: TopicPartition
    records: int
    size: int
    end_offset: int
    failure: str


class Demand(NamedTuple):
    """Partitions with the offset that their high watermark must reach within `wait_ms`."""

    partitions: Mapping[TopicPartition, int]
    wait_ms: int


class Due(NamedTuple):
    """What became due at one broker when its clock was advanced, and is done."""

    retained: tuple[PartitionGone, ...]
    compacted: tuple[PartitionGone, ...]
    offsets: tuple[tuple[str, TopicPartition], ...]
    transactional_ids: tuple[str, ...]
    tokens: tuple[str, ...]
    producers: int


def encode_asked(asked: Demand) -> Body:
    """Return the body of `compact` and `expire`."""
    rows = [[*tp, end] for tp, end in asked.partitions.items()]
    return {"partitions": rows, "wait_ms": asked.wait_ms}


def decode_asked(body: object) -> Demand:
    """Return the request in a body of `compact` and `expire`."""
    fields = as_map(body, {"partitions": [], "wait_ms": 0})
    rows = as_rows(fields["partitions"], _end)
    return Demand(dict(rows), as_integer(fields["wait_ms"], 0, _WAIT_MAX_MS))


def _end(value: object) -> tuple[TopicPartition, int]:
    topic, partition, end = as_row(value, 3)
    return as_topic_partition([topic, partition]), as_integer(end, 0, INT64_MAX)


def encode_gone(rows: Iterable[PartitionGone]) -> Body:
    """Return the response to `compact` and `expire`."""
    return {"gone": [_gone_row(row) for row in rows]}


def decode_gone(body: object) -> tuple[PartitionGone, ...]:
    """Return what a response to `compact` and `expire` says."""
    return as_rows(as_map(body, {"gone": []})["gone"], _gone)


def _gone_row(row: PartitionGone) -> list[Any]:
    return [*row.tp, *row[1:]]


def _gone(value: object) -> PartitionGone:
    topic, partition, records, size, end, failure = as_row(value, 6)
    return PartitionGone(
        as_topic_partition([topic, partition]),
        as_integer(records, 0, INT64_MAX),
        as_integer(size, -INT64_MAX, INT64_MAX),
        as_integer(end, -1, INT64_MAX),
        as_text(failure, _REASON),
    )


def encode_group(group: str) -> Body:
    """Return the body of `expire_group`."""
    return {"group": group}


def decode_group(body: object) -> str:
    """Return the group in a body of `expire_group`."""
    return as_text(as_map(body, {"group": ""})["group"], _GROUP)


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> Body:
    """Return the response to `expire_group`."""
    return {"offsets": [[*tp, offset] for tp, offset in offsets.items()]}


def decode_offsets(body: object) -> dict[TopicPartition, int]:
    """Return the offsets in a response to `expire_group`."""
    return dict(as_rows(as_map(body, {"offsets": []})["offsets"], _end))


def encode_advance(advanced_ms: int) -> Body:
    """Return the body of `advance_clock`."""
    return {"advanced_ms": advanced_ms}


def decode_advance(body: object) -> int:
    """Return by how much the clock is to be ahead of the machine's in all."""
    return as_integer(as_map(body, {"advanced_ms": 0})["advanced_ms"], 0, ADVANCED_MAX_MS)


def encode_due(due: Due) -> Body:
    """Return the response to `advance_clock`."""
    return {
        "retained": [_gone_row(row) for row in due.retained],
        "compacted": [_gone_row(row) for row in due.compacted],
        "offsets": [[group, *tp] for group, tp in due.offsets],
        "transactional_ids": [[one] for one in due.transactional_ids],
        "tokens": [[one] for one in due.tokens],
        "producers": due.producers,
    }


def decode_due(body: object) -> Due:
    """Return what a response to `advance_clock` says."""
    empty: Body = {name: [] for name in Due._fields}
    fields = as_map(body, {**empty, "producers": 0})
    return Due(
        as_rows(fields["retained"], _gone),
        as_rows(fields["compacted"], _gone),
        as_rows(fields["offsets"], _group_offset),
        as_rows(fields["transactional_ids"], _name),
        as_rows(fields["tokens"], _name),
        as_integer(fields["producers"], 0, INT64_MAX),
    )


def _group_offset(value: object) -> tuple[str, TopicPartition]:
    group, topic, partition = as_row(value, 3)
    return as_text(group, _GROUP), as_topic_partition([topic, partition])


def _name(value: object) -> str:
    return as_text(as_row(value, 1)[0], _GROUP)
