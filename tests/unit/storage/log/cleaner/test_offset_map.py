"""The map of a cleaner in both of its forms: a dict for few keys, buckets for many."""

from __future__ import annotations

import tracemalloc

import pytest

from minikafka.kafka.records.batch import Record
from minikafka.storage.log.cleaner.offset_map import ENTRY_BYTES, OffsetMap

MIB = 1 << 20
MANY = 20_000


def entries(keys: list[bytes | None], first: int = 0) -> list[Record]:
    return [Record(offset=first + i, key=key, value=b"v") for i, key in enumerate(keys)]


def filled(keys: list[bytes | None], memory: int = MIB) -> OffsetMap:
    offsets = OffsetMap(memory, 0.9)
    for first in range(0, len(keys), 100):
        part = keys[first : first + 100]
        assert not offsets.put_all(entries(part, first), len(part), 0)
    return offsets


@pytest.mark.parametrize("size", [1, 15, 16, 64, 65, 300])
@pytest.mark.parametrize("count", [10, MANY])
def test_map_returns_the_latest_offset_of_each_key(size: int, count: int) -> None:
    keys: list[bytes | None] = [b"%0*d" % (size, i % 10**size) for i in range(count)]
    offsets = filled(keys)
    expected = {key: offset for offset, key in enumerate(keys)}
    assert offsets.latest(expected) == list(expected.values())
    assert len(offsets) == len(expected)
    assert offsets.latest([b"another", None]) == [-1, -1]


def test_offset_map_keeps_the_latest_offsets_after_it_changes_from_dict_to_buckets() -> None:
    keys: list[bytes | None] = [b"key-%d" % (i % 15_000) for i in range(MANY)]
    offsets = filled(keys)
    assert offsets.latest([b"key-%d" % i for i in (0, 4_999, 5_000)]) == [15_000, 19_999, 5_000]


def test_keys_of_null_bytes_that_differ_only_in_length_are_not_confused() -> None:
    keys: list[bytes | None] = [bytes(size) for size in range(20)]
    keys += [b"%d" % i for i in range(MANY)]
    offsets = filled(keys)
    assert offsets.latest([bytes(size) for size in range(20)]) == list(range(20))


def test_records_without_key_or_below_the_start_are_not_mapped() -> None:
    offsets = OffsetMap(MIB, 0.9)
    assert not offsets.put_all(entries([b"a", b"b", None, b"c"]), 4, 1)
    assert offsets.latest([b"a", b"b", b"c"]) == [-1, 1, 3]


def test_map_is_full_at_the_number_of_keys_that_kafka_maps() -> None:
    offsets = OffsetMap(100 * ENTRY_BYTES, 0.9)
    assert offsets.capacity == 90
    assert offsets.put_all(entries([b"%d" % i for i in range(95)]), 95, 0)
    assert (len(offsets), offsets.latest_offset) == (90, 89)


def test_full_map_accepts_no_further_record_even_of_a_known_key() -> None:
    offsets = OffsetMap(100 * ENTRY_BYTES, 0.9)
    assert offsets.put_all(entries([b"%d" % (i % 90) for i in range(100)]), 100, 0)
    assert (offsets.latest([b"0"]), offsets.latest_offset) == ([0], 89)


def test_full_map_uses_no_more_memory_than_its_buffer() -> None:
    """The peak of memory use occurs when the keys move from the dict to the buckets, or when the map is full."""
    keys = [b"key-%020d" % i for i in range(4 * MIB // ENTRY_BYTES)]
    tracemalloc.start()
    try:
        offsets = OffsetMap(4 * MIB, 0.9)
        for first in range(0, len(keys), 1_000):
            part = entries([*keys[first : first + 1_000]], first)
            if offsets.put_all(part, len(part), 0):
                break
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(offsets) == offsets.capacity
    assert peak < 1.1 * 4 * MIB
