"""The columns of `transactions`: those of kafka-transactions.sh, and their names in JSON."""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.client.administration.transaction_admin import (
    TransactionDescription,
    TransactionListing,
)
from minikafka.tools.cli.terminal.columns import Column

_MINUTE_MS: Final = 60_000


class Listed(NamedTuple):
    """A transactional id. `age_ms`: how long its transaction has been open; None if no transaction is open."""

    listing: TransactionListing
    age_ms: int | None


def _age(ms: int | None) -> str:
    """Return an age as text, for example `35s`, `12m` or `3h`; "-" if it is not known."""
    if ms is None:
        return "-"
    seconds = ms // 1000
    if seconds < 120:
        return f"{seconds}s"
    return f"{seconds // 60}m" if seconds < 7_200 else f"{seconds // 3_600}h"


LISTING: Final = (
    Column("TransactionalId", "transactional_id", attrgetter("listing.transactional_id")),
    Column("Coordinator", "coordinator", attrgetter("listing.coordinator")),
    Column("ProducerId", "producer_id", attrgetter("listing.producer_id")),
    Column("TransactionState", "state", attrgetter("listing.state")),
    Column("Age", "age_ms", attrgetter("age_ms"), text=_age),
)
"""A row is a `Listed`. The age is a column that Kafka's tool lacks."""


def description(now: int) -> list[Column]:
    """Return the columns of transactional ids. `now`: Unix ms."""
    return [
        Column("CoordinatorId", "coordinator", attrgetter("coordinator")),
        Column("TransactionalId", "transactional_id", attrgetter("transactional_id")),
        Column("ProducerId", "producer_id", attrgetter("producer_id")),
        Column("ProducerEpoch", "producer_epoch", attrgetter("producer_epoch")),
        Column("TransactionState", "state", attrgetter("state")),
        Column("TransactionTimeoutMs", "timeout_ms", attrgetter("timeout_ms")),
        Column("CurrentTransactionStartTimeMs", "start_time_ms", attrgetter("start_ms")),
        Column("TransactionDurationMs", "duration_ms", lambda one: duration_ms(one, now)),
        Column("TopicPartitions", "", lambda one: ",".join(map(str, one.partitions))),
        Column("", "partitions", lambda one: [_as_json_partition(tp) for tp in one.partitions]),
    ]


PRODUCERS: Final = (
    Column("ProducerId", "producer_id", attrgetter("producer_id")),
    Column("ProducerEpoch", "producer_epoch", attrgetter("producer_epoch")),
    Column("LatestCoordinatorEpoch", "coordinator_epoch", attrgetter("coordinator_epoch")),
    Column("LastSequence", "last_sequence", attrgetter("last_sequence")),
    Column("LastTimestamp", "last_timestamp", attrgetter("last_timestamp")),
    Column("CurrentTransactionStartOffset", "start_offset", attrgetter("start_offset")),
)
"""A row is a `ProducerState`."""


def hanging(now: int) -> list[Column]:
    """Return the columns of hanging transactions. `now`: Unix ms."""
    return [
        Column("Topic", "topic", attrgetter("tp.topic")),
        Column("Partition", "partition", attrgetter("tp.partition")),
        Column("ProducerId", "producer_id", attrgetter("producer.producer_id")),
        Column("ProducerEpoch", "producer_epoch", attrgetter("producer.producer_epoch")),
        Column("CoordinatorEpoch", "coordinator_epoch", attrgetter("producer.coordinator_epoch")),
        Column("StartOffset", "start_offset", attrgetter("start_offset")),
        Column("LastTimestamp", "last_timestamp", attrgetter("producer.last_timestamp")),
        Column("Duration(min)", "", lambda one: (now - one.producer.last_timestamp) // _MINUTE_MS),
    ]


def duration_ms(one: TransactionDescription, now: int) -> int | None:
    """Return the age of the open transaction in ms; None if no transaction is open. `now`: Unix ms."""
    return None if one.start_ms is None else max(now - one.start_ms, 0)


def _as_json_partition(tp: TopicPartition) -> dict[str, Any]:
    return {"topic": tp.topic, "partition": tp.partition}
