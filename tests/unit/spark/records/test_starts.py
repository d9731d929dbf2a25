"""The vectorised search for record boundaries, compared with a loop from record to record."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from minikafka.base.errors import CorruptBatch
from minikafka.spark.records import starts


@pytest.fixture(params=[starts.LARGE, 0], ids=["search", "loop"], scope="module", autouse=True)
def way(request):
    """Find the records of all tests by the search, then by the loop over the records, which suits large ones."""
    before, starts.LARGE = starts.LARGE, request.param
    yield
    starts.LARGE = before


def zigzag(number: int, *, size: int = 0) -> bytes:
    """Return a zigzag varint, padded to `size` bytes as some encoders do."""
    raw, out = (number << 1) ^ (number >> 63), []
    while raw > 0x7F or len(out) + 1 < size:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*out, raw])


def laid_out(
    bodies: list[bytes], sizes: list[int] | None = None
) -> tuple[bytes, list[tuple[int, int]]]:
    data, spans = b"", []
    for body, size in zip(bodies, sizes or [0] * len(bodies), strict=True):
        data += zigzag(len(body), size=size)
        spans.append((len(data), len(data) + len(body)))
        data += body
    return data, spans


def found(data: bytes, section_starts: list[int], counts: list[int]) -> list[tuple[int, int]]:
    padded = np.frombuffer(data + bytes(starts.PADDING), np.uint8)
    bodies, ends = starts.find(padded, np.array(section_starts), np.array(counts))
    return list(zip(bodies.tolist(), ends.tolist(), strict=True))


confusing = st.lists(
    st.sampled_from(
        [b"\x00", b"\x0c\x00", b"\x0e\x00", b"\x80\x01\x00", b"\xff", b"\x10", b"A\x00B\x00"]
    )
).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(
    bodies=st.lists(confusing | st.binary(max_size=400), min_size=1, max_size=40),
    attributes=st.integers(0, 3),
)
def test_record_boundaries_are_found_when_bodies_look_like_record_starts(bodies, attributes):
    bodies = [bytes([attributes]) + body + bytes(5) for body in bodies]
    data, spans = laid_out(bodies)
    assert found(data, [0], [len(bodies)]) == spans


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=20))
def test_padded_record_lengths_are_read(sizes):
    data, spans = laid_out([bytes(9)] * len(sizes), sizes)
    assert found(data, [0], [len(sizes)]) == spans


def test_record_that_crosses_into_the_next_batch_is_refused():
    data, spans = laid_out([bytes(8)] * 4)
    assert found(data, [0, 18], [2, 2]) == spans
    for section_starts, counts in (([0, 18], [1, 3]), ([0, 9], [2, 2]), ([0, 17], [2, 2])):
        with pytest.raises(CorruptBatch):
            found(data, section_starts, counts)


@pytest.mark.parametrize(
    "data", [b"", b"\x0c", b"\x0c" + bytes(5), b"\x0a" + bytes(5), b"\xff" * 40, bytes(40)]
)
def test_bytes_without_records_are_refused(data):
    with pytest.raises(CorruptBatch):
        found(data, [0], [1])


def test_value_that_contains_encoded_records_is_one_value():
    inner, _ = laid_out([bytes(7)] * 300)
    data, spans = laid_out([bytes(2) + inner + bytes(4), bytes(6), bytes(2) + inner + bytes(4)])
    assert found(data, [0], [3]) == spans


@example(numbers=[64, 0])  # the last number has a shorter encoding than the first
@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1))
def test_numbers_of_64_bits_are_read_at_any_position(numbers):
    data, positions = b"", []
    for number in numbers:
        positions.append(len(data))
        data += zigzag(number)
    values, after = starts.varints(
        np.frombuffer(data + bytes(starts.PADDING), np.uint8),
        np.array(positions),
        starts.LONG_BYTES,
    )
    assert values.tolist() == numbers
    assert after.tolist() == [*positions[1:], len(data)]


def test_large_records_are_found_without_a_look_at_every_byte(monkeypatch):
    monkeypatch.setattr(starts, "LARGE", 1024)
    for name in ("_between_zeros", "_likely", "_all"):
        monkeypatch.setattr(starts, name, None)
    data, spans = laid_out([bytes(2_000)] * 3)
    assert found(data, [0], [3]) == spans
