"""The records of `__transaction_state`: round trips, both versions, and malformed bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from minikafka.base.model import TopicPartition
from minikafka.deciders.transactions.records import (
    is_too_long,
    read_transaction_key,
    read_transaction_value,
    transaction_key,
    transaction_value,
)
from minikafka.deciders.transactions.states import NUMBERS, TransactionMetadata, TransactionState

STATE = TransactionState
WRITTEN = [state for state in STATE if state not in (STATE.DEAD, STATE.PREPARE_EPOCH_FENCE)]
TEXT = st.text(st.characters(codec="utf-8"), max_size=50)
LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
METADATA = st.builds(
    TransactionMetadata,
    LONG,
    st.integers(-(2**15), 2**15 - 1),
    INT,
    st.sampled_from(WRITTEN),
    LONG,
    LONG,
    st.frozensets(st.builds(TopicPartition, TEXT, INT), max_size=8),
    last_producer_id=st.just(-1),
    last_producer_epoch=st.just(-1),
)
T0 = TopicPartition("t", 0)
EXAMPLE = TransactionMetadata(
    40, 3, 60_000, STATE.ONGOING, 22, 21, frozenset((T0, TopicPartition("t", 2)))
)


@given(METADATA)
def test_value_is_read_as_it_was_written(metadata):
    if metadata.state is STATE.EMPTY:
        metadata = metadata._replace(partitions=frozenset())

    assert read_transaction_value(transaction_value(metadata)) == metadata


@given(TEXT)
def test_key_is_read_as_it_was_written(name):
    assert read_transaction_key(transaction_key(name)) == name


def test_records_have_the_bytes_of_kafkas_schema():
    assert transaction_key("käse") == b"\0\0\0\5k\xc3\xa4se"
    assert transaction_value(EXAMPLE) == b"".join(
        (
            struct.pack(">hqhib", 0, 40, 3, 60_000, 1),
            struct.pack(">ih1siii", 1, 1, b"t", 2, 0, 2),
            struct.pack(">qq", 22, 21),
        )
    )
    empty = TransactionMetadata(40, 0, 60_000, STATE.EMPTY, 22)
    assert transaction_value(empty)[17:] == struct.pack(">iqq", -1, 22, -1)


def test_flexible_version_is_read_with_its_tagged_fields():
    topics = b"\x02\x02t" + b"\x03" + struct.pack(">ii", 0, 2) + b"\x01\x07\x02xy"
    value = struct.pack(">hqhib", 1, 40, 3, 60_000, 1) + topics + struct.pack(">qq", 22, 21) + b"\0"

    assert read_transaction_value(value) == EXAMPLE


@for_each(range(len(transaction_value(EXAMPLE))))
def test_value_that_is_cut_off_is_refused(size):
    with pytest.raises(ValueError, match=r"cut off|exceeds the message|must begin with a version"):
        read_transaction_value(transaction_value(EXAMPLE)[:size])


@pytest.mark.parametrize("number", [NUMBERS[STATE.DEAD], NUMBERS[STATE.PREPARE_EPOCH_FENCE], 8, -1])
def test_state_that_is_never_written_is_refused(number):
    value = bytearray(transaction_value(EXAMPLE))
    value[16:17] = struct.pack(">b", number)

    with pytest.raises(ValueError, match="no record may have"):
        read_transaction_value(bytes(value))


def test_unknown_versions_are_refused():
    with pytest.raises(ValueError, match="version 2"):
        read_transaction_value(b"\0\2" + transaction_value(EXAMPLE)[2:])
    with pytest.raises(ValueError, match="version 1 of its key"):
        read_transaction_key(b"\0\1\0\1x")


@pytest.mark.parametrize(("name", "is_long"), [("x" * 32_767, False), ("x" * 32_768, True)])
def test_longest_transactional_id_has_32767_bytes(name, is_long):
    assert is_too_long(name) is is_long
