"""Stored messages, which begin with their version."""

from __future__ import annotations

import random

import pytest
from support.kafka.kio_oracle import plain
from support.kafka.random_messages import values_of

from minikafka.kafka.messages import table
from minikafka.kafka.messages.records import RECORDS
from minikafka.kafka.messages.stored import read_fields, read_stored, stored, version_of

STORED = [
    (name, version)
    for name in RECORDS
    for version in range(table.record(name).versions.low, table.record(name).versions.high + 1)
]


@pytest.mark.parametrize(("name", "version"), STORED)
def test_stored_message_of_every_version_survives_a_round_trip(name: str, version: int) -> None:
    structure = table.record(name).structure
    rng = random.Random(f"{name} {version}")
    for _ in range(10):
        values = values_of(structure, version, rng)
        data = stored(name, version, **values)
        assert version_of(data) == version
        assert plain(structure, version, read_stored(name, data)) == values
        assert read_stored(name, data + b"later fields") == read_stored(name, data)


@pytest.mark.parametrize(("name", "version"), STORED)
def test_cut_off_stored_message_is_refused(name: str, version: int) -> None:
    values = values_of(table.record(name).structure, version, random.Random(name))
    data = stored(name, version, **values)
    for end in range(min(len(data), 60)):
        with pytest.raises(ValueError, match=r"cut off|exceeds the message|begin with a version"):
            read_stored(name, data[:end])


def test_fields_of_an_old_version_are_read_from_a_newer_message() -> None:
    data = stored("ConsumerProtocolSubscription", 3, topics=["a"], rack_id="r")
    assert read_fields("ConsumerProtocolSubscription", 0, b"\0\x09" + data[2:]).topics == ("a",)
