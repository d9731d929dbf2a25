"""The records of `__transaction_state`, byte for byte as Kafka 3.9 writes and reads them.

A key has version 0 and contains the transactional id (`TransactionLogKey`). A value has version 0, or version 1,
the first one with tagged fields (`TransactionLogValue`). Kafka 3.9 writes version 0 without the feature
`transaction.version`, and reads both. A null value is a tombstone. The readers raise ValueError for malformed bytes.
"""

from __future__ import annotations

from itertools import groupby
from typing import Final

from minikafka.base.model import TopicPartition
from minikafka.deciders.transactions.states import NUMBERS, TransactionMetadata, TransactionState
from minikafka.kafka.messages.decoder import STRING_BYTES_MAX
from minikafka.kafka.messages.encoder import Row
from minikafka.kafka.messages.stored import read_stored, stored, version_of

_WRITTEN: Final = 0
_STATES: Final = {
    number: state
    for state, number in NUMBERS.items()
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
}
"""Number → state, for the states that are written."""


def is_too_long(transactional_id: str) -> bool:
    """True if a record cannot contain this transactional id."""
    return (
        len(transactional_id) * 4 > STRING_BYTES_MAX
        and len(transactional_id.encode()) > STRING_BYTES_MAX
    )


def transaction_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id. Raises ValueError if it is longer than 32,767 bytes."""
    return stored("TransactionLogKey", _WRITTEN, transactional_id=transactional_id)


def transaction_value(value: TransactionMetadata) -> bytes:
    """Return the value of a transactional id in version 0."""
    return stored(
        "TransactionLogValue",
        _WRITTEN,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=NUMBERS[value.state],
        transaction_partitions=_partitions(value),
        transaction_last_update_timestamp_ms=value.updated_ms,
        transaction_start_timestamp_ms=value.started_ms,
    )


def _partitions(value: TransactionMetadata) -> list[Row] | None:
    if value.state is TransactionState.EMPTY:
        return None
    return [
        {"topic": topic, "partition_ids": [tp.partition for tp in run]}
        for topic, run in groupby(sorted(value.partitions), lambda tp: tp.topic)
    ]


def read_transaction_key(data: bytes) -> str:
    """Return the transactional id of a key. Raises ValueError, also for versions that Kafka 3.9 skips."""
    version = version_of(data)
    if version != _WRITTEN:
        raise ValueError(f"version {version} of its key is unknown")
    transactional_id: str = read_stored("TransactionLogKey", data).transactional_id
    return transactional_id


def read_transaction_value(data: bytes) -> TransactionMetadata:
    """Decode the value of a transactional id. Raises ValueError."""
    found = read_stored("TransactionLogValue", data)
    state = _STATES.get(found.transaction_status)
    if state is None:
        raise ValueError(
            f"the state has number {found.transaction_status}, which no record may have"
        )
    return TransactionMetadata(
        found.producer_id,
        found.producer_epoch,
        found.transaction_timeout_ms,
        state,
        found.transaction_last_update_timestamp_ms,
        found.transaction_start_timestamp_ms,
        frozenset(
            TopicPartition(topic.topic, number)
            for topic in found.transaction_partitions or ()
            for number in topic.partition_ids
        ),
    )
