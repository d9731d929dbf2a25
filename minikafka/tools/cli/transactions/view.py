"""The output of `transactions`: the columns of kafka-transactions.sh, or JSON. A missing value is "-", or null."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from minikafka.base.model import TopicPartition
from minikafka.client.administration.transaction_admin import (
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from minikafka.tools.cli.terminal.columns import fitted_lines
from minikafka.tools.cli.transactions.hanging import HangingTransaction

_MINUTE_MS: Final = 60_000


def listing_lines(found: Sequence[TransactionListing], ages: Mapping[str, int]) -> Iterator[str]:
    """Yield the header and a line for each transactional id. `ages`: how long transactions have been open, in ms.

    The column of the ages follows those of Kafka's tool.
    """
    header = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState", "Age")
    rows = [(*one, _age(ages.get(one.transactional_id))) for one in found]
    return fitted_lines(header, rows)


def _age(ms: int | None) -> str | None:
    """Return an age as text, for example `35s`, `12m` or `3h`; None if it is not known."""
    if ms is None:
        return None
    seconds = ms // 1000
    if seconds < 120:
        return f"{seconds}s"
    return f"{seconds // 60}m" if seconds < 7_200 else f"{seconds // 3_600}h"


def description_lines(found: Sequence[TransactionDescription], now: int) -> Iterator[str]:
    """Yield the header and a line for each transactional id. `now`: Unix ms."""
    header = (
        *("CoordinatorId", "TransactionalId", "ProducerId", "ProducerEpoch", "TransactionState"),
        *("TransactionTimeoutMs", "CurrentTransactionStartTimeMs", "TransactionDurationMs"),
        "TopicPartitions",
    )
    rows = [
        (
            *(one.coordinator, one.transactional_id, one.producer_id, one.producer_epoch),
            *(one.state, one.timeout_ms, one.start_ms, duration_ms(one, now)),
            ",".join(map(str, one.partitions)),
        )
        for one in found
    ]
    return fitted_lines(header, rows)


def producer_lines(producers: Sequence[ProducerState]) -> Iterator[str]:
    """Yield the header and a line for each producer."""
    header = (
        *("ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch", "LastSequence"),
        *("LastTimestamp", "CurrentTransactionStartOffset"),
    )
    rows = [
        (
            *(one.producer_id, one.producer_epoch, one.coordinator_epoch, one.last_sequence),
            *(one.last_timestamp, one.start_offset),
        )
        for one in producers
    ]
    return fitted_lines(header, rows)


def hanging_lines(found: Sequence[HangingTransaction], now: int) -> Iterator[str]:
    """Yield the header and a line for each hanging transaction. `now`: Unix ms."""
    header = (
        *("Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset"),
        *("LastTimestamp", "Duration(min)"),
    )
    rows = [
        (
            *(one.tp.topic, one.tp.partition, one.producer.producer_id),
            *(one.producer.producer_epoch, one.producer.coordinator_epoch, one.start_offset),
            *(one.producer.last_timestamp, (now - one.producer.last_timestamp) // _MINUTE_MS),
        )
        for one in found
    ]
    return fitted_lines(header, rows)


def duration_ms(one: TransactionDescription, now: int) -> int | None:
    """Return the age of the open transaction in ms; None if no transaction is open. `now`: Unix ms."""
    return None if one.start_ms is None else max(now - one.start_ms, 0)


def as_json_description(one: TransactionDescription, now: int) -> dict[str, Any]:
    """Return the JSON object of a transactional id."""
    return {
        "transactional_id": one.transactional_id,
        "coordinator": one.coordinator,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "state": one.state,
        "timeout_ms": one.timeout_ms,
        "start_time_ms": one.start_ms,
        "duration_ms": duration_ms(one, now),
        "partitions": [_as_json_partition(tp) for tp in one.partitions],
    }


def as_json_open(one: HangingTransaction) -> dict[str, Any]:
    """Return the JSON object of a transaction that is open in a partition."""
    return {
        **_as_json_partition(one.tp),
        "producer_id": one.producer.producer_id,
        "producer_epoch": one.producer.producer_epoch,
        "coordinator_epoch": one.producer.coordinator_epoch,
        "start_offset": one.producer.start_offset,
        "last_timestamp": one.producer.last_timestamp,
    }


def _as_json_partition(tp: TopicPartition) -> dict[str, Any]:
    return {"topic": tp.topic, "partition": tp.partition}
