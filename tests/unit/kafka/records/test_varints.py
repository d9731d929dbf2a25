"""Varints of records and of the wire protocol survive a round trip, and malformed varints are refused."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from minikafka.base.errors import CorruptBatch, ProtocolViolation
from minikafka.kafka.records.varints import read_uvarint, read_varint, uvarint, varint


@given(st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=200, deadline=None)
def test_varint_is_decoded_as_it_was_encoded(number: int) -> None:
    data = b"before" + varint(number)
    assert read_varint(data, 6) == (number, len(data))


def test_truncated_or_endless_varint_raises_corrupt_batch() -> None:
    for data in (b"", b"\x80", b"\xff" * 11):
        with pytest.raises(CorruptBatch):
            read_varint(data, 0)


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**14, 2**21 - 1, 2**28, 2**32 - 1])
def test_unsigned_varint_is_decoded_as_it_was_encoded(number: int) -> None:
    data = uvarint(number)
    assert read_uvarint(b"x" + data + b"x", 1) == (number, 1 + len(data))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 4, b"\xff" * 6, b"\xff\xff\xff\xff\x1f"])
def test_unsigned_varint_that_is_cut_off_or_exceeds_32_bits_is_a_violation(data: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        read_uvarint(data, 0)


def test_unsigned_varint_beyond_the_end_of_the_buffer_is_a_violation() -> None:
    with pytest.raises(ProtocolViolation):
        read_uvarint(b"\x01", 5)
