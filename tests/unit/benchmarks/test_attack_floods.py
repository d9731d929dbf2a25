"""The requests of the attack benchmark, which the broker must decode: otherwise it only closes the connection."""

from __future__ import annotations

from struct import Struct

import pytest

from benchmarks.attack_floods import FLOODS, Flood, Target
from benchmarks.kafka import LENGTH
from minikafka.kafka.wire.codec import decode_request

HEAD = Struct(">hhih8s")
"""API, version, correlation, size and text of the client id."""
REQUESTS = FLOODS[:-2]


@pytest.mark.parametrize("flood", REQUESTS, ids=[flood.name for flood in REQUESTS])
def test_flood_consists_of_whole_valid_requests(flood: Flood) -> None:
    data = flood.data(Target("flooded", 240))

    (size,) = LENGTH.unpack_from(data)
    api, version, *_, client = HEAD.unpack_from(data, LENGTH.size)
    request = data[LENGTH.size : LENGTH.size + size]
    decode_request(api, version, request[HEAD.size :])
    assert client == b"attacker"
    assert data == (len(data) // (LENGTH.size + size)) * (LENGTH.pack(size) + request)
