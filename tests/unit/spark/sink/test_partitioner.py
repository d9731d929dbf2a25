"""The vectorised partitioner of the Spark sink, compared with our client's, which other tests compare with Java's."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest

from minikafka.client.partitioner import murmur2, partition_for_key
from minikafka.spark.sink import rows


@pytest.mark.parametrize("seed", range(20))
def test_keys_of_any_length_are_hashed_as_by_the_client_package(seed):
    rng = random.Random(seed)
    keys = [rng.randbytes(rng.randrange(40)) for _ in range(200)]
    assert rows.murmur2(pa.array(keys, pa.binary())).tolist() == [murmur2(key) for key in keys]
    sliced = pa.array(keys, pa.binary()).slice(7, 50)
    found = rows.partitions(sliced, 7, np.zeros(50, np.int64)).tolist()
    assert found == [partition_for_key(key, 7) for key in keys[7:57]]


def test_rows_without_a_key_get_the_partition_of_their_number():
    keys = pa.array([None, b"k", None, None], pa.binary())
    numbers = np.array([13, 13, 13, 14])
    assert rows.partitions(keys, 5, numbers).tolist() == [
        3,
        partition_for_key(b"k", 5),
        3,
        4,
    ]
    nulls = pa.nulls(4, pa.binary())
    assert rows.partitions(nulls, 5, numbers).tolist() == [3, 3, 3, 4]


def test_partitioner_returns_no_partitions_for_no_rows():
    assert rows.partitions(pa.array([], pa.binary()), 5, np.zeros(0, np.int64)).tolist() == []
