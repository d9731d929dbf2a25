"""The partitioner chooses the same partitions as other clients."""

from __future__ import annotations

from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given
from hypothesis import strategies as st

from minikafka.client.partitioner import murmur2, partition_for_key


@given(st.binary(max_size=40))
def test_partitioner_hash_of_any_key_equals_the_hash_in_aiokafka(data: bytes) -> None:
    assert murmur2(data) == murmur2_of_aiokafka(data) & 0xFFFFFFFF


@given(st.binary(max_size=20), st.integers(1, 1000))
def test_partition_of_a_key_is_constant_and_in_range(key: bytes, count: int) -> None:
    partition = partition_for_key(key, count)
    assert 0 <= partition < count
    assert partition == partition_for_key(key, count)


def test_partitioner_hashes_equal_the_values_in_kafkas_test() -> None:
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"foobar") == -790332482 & 0xFFFFFFFF
    assert murmur2(b"a-little-bit-long-string") == -985981536 & 0xFFFFFFFF
    assert murmur2(b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8") == -58897971 & 0xFFFFFFFF
