"""The records of `__transaction_state`, byte for byte as Kafka 3.9 writes and reads them.

A key has version 0 and contains the transactional id (`TransactionLogKey`). A value has version 0, or version 1,
the first one with tagged fields (`TransactionLogValue`). Kafka 3.9 writes version 0 without the feature
`transaction.version`, and reads both. A null value is a tombstone. The readers raise ValueError for malformed bytes.
"""

from __future__ import annotations

from itertools import groupby
from struct import Struct
from typing import Final

from minikafka.base.fields import STRING_MAX, Fields, encode_string
from minikafka.base.model import TopicPartition
from minikafka.transactions.states import NUMBERS, Metadata, TransactionState

_FLEXIBLE: Final = 1
_WRITTEN: Final = 0
_KEY_VERSION: Final = Struct(">h")
_HEAD: Final = Struct(">hqhib")
"""Version, producer id, producer epoch, timeout and number of the state."""
_TIMES: Final = Struct(">qq")
_COUNT: Final = Struct(">i")
_NULL_ARRAY: Final = _COUNT.pack(-1)
_STATES: Final = {
    number: state
    for state, number in NUMBERS.items()
    if state not in (TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE)
}
"""Number → state, for the states that are written."""


def is_too_long(transactional_id: str) -> bool:
    """True if a record cannot contain this transactional id."""
    return len(transactional_id) * 4 > STRING_MAX and len(transactional_id.encode()) > STRING_MAX


def transaction_key(transactional_id: str) -> bytes:
    """Return the key of a transactional id. Raises ValueError if it is longer than 32,767 bytes."""
    return _KEY_VERSION.pack(_WRITTEN) + encode_string(transactional_id)


def transaction_value(value: Metadata) -> bytes:
    """Return the value of a transactional id in version 0."""
    head = _HEAD.pack(
        _WRITTEN,
        value.producer_id,
        value.producer_epoch,
        value.timeout_ms,
        NUMBERS[value.state],
    )
    return head + _partitions(value) + _TIMES.pack(value.updated_ms, value.started_ms)


def _partitions(value: Metadata) -> bytes:
    if value.state is TransactionState.EMPTY:
        return _NULL_ARRAY
    topics = [
        (topic, [tp.partition for tp in run])
        for topic, run in groupby(sorted(value.partitions), lambda tp: tp.topic)
    ]
    parts = [_COUNT.pack(len(topics))]
    for topic, numbers in topics:
        parts += (
            encode_string(topic),
            Struct(f">{len(numbers) + 1}i").pack(len(numbers), *numbers),
        )
    return b"".join(parts)


def read_transaction_key(data: bytes) -> str:
    """Return the transactional id of a key. Raises ValueError, also for versions that Kafka 3.9 skips."""
    fields = Fields(data, _FLEXIBLE)
    if fields.version != _WRITTEN:
        raise ValueError(f"version {fields.version} of its key is unknown")
    return fields.string()


def read_transaction_value(data: bytes) -> Metadata:
    """Decode the value of a transactional id. Raises ValueError."""
    fields = Fields(data, _FLEXIBLE)
    fields.known_version(_FLEXIBLE)
    producer_id, epoch, timeout_ms = fields.int64(), fields.int16(), fields.int32()
    number = fields.int8()
    state = _STATES.get(number)
    if state is None:
        raise ValueError(f"the state has number {number}, which no record may have")
    partitions = frozenset(tp for _ in range(fields.nullable_count()) for tp in _read_topic(fields))
    updated_ms, started_ms = fields.int64(), fields.int64()
    return Metadata(producer_id, epoch, timeout_ms, state, updated_ms, started_ms, partitions)


def _read_topic(fields: Fields) -> list[TopicPartition]:
    topic = fields.string()
    found = [TopicPartition(topic, fields.int32()) for _ in range(fields.count())]
    fields.skip_tags()
    return found
