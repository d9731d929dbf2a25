"""The partition of `__consumer_offsets` that stores a group."""

from __future__ import annotations

import pytest

from minikafka.base.coordinators import partition_of


@pytest.mark.parametrize(
    ("group", "hash_code"),
    [
        ("", 0),
        ("a", 97),
        ("group", 98629247),
        ("console-consumer-12345", 158_455_506),
        ("grüße", 98_768_023),
        ("😀", 1_772_899),
        ("my-group", -1_906_497_762),
        ("polygenelubricants", -(2**31)),
    ],
)
def test_partition_of_a_group_is_computed_from_the_java_hash_of_its_id(group, hash_code):
    magnitude = 0 if hash_code == -(2**31) else abs(hash_code)

    assert partition_of(group, 50) == magnitude % 50
    assert partition_of(group, 7) == magnitude % 7
