"""Random plain values of messages."""

from __future__ import annotations

import random
from typing import Any

from minikafka.kafka.messages import table
from minikafka.kafka.messages.table import Field, Message, Structure
from minikafka.kafka.wire.versions import OWN, PRODUCE, SERVED

NUMBERS = {
    "int8": 127,
    "int16": 2**15 - 1,
    "int32": 2**31 - 1,
    "int64": 2**63 - 1,
    "uint16": 2**16 - 1,
}
FIRST_PRODUCE = 3
"""The broker refuses Produce 0 to 2 before it decodes them, and kio has no schema of them."""
CODES = (-1, 0, 3, 79)

MESSAGES = [
    (api, version, is_request)
    for api, (low, high) in SERVED.items()
    if api not in OWN
    for version in range(FIRST_PRODUCE if api == PRODUCE else low, high + 1)
    for is_request in (True, False)
]
"""(API key, version, True for the request) of every message of Kafka that brokers serve."""


def message(api: int, is_request: bool) -> Message:
    return table.request(api) if is_request else table.response(api)


def values_of(structure: Structure, version: int, rng: random.Random) -> dict[str, Any]:
    """Return a random value for each field that the version has."""
    return {
        field.name: value_of(field, version, rng)
        for field in structure.fields
        if version in field.versions
    }


def value_of(field: Field, version: int, rng: random.Random) -> Any:
    if version in field.nullable and rng.random() < 0.2:
        return None
    if not field.is_array:
        return one(field, version, rng)
    count = rng.choice((0, 1, 3, 130))
    if field.structure is not None:
        count = min(count, 3)
    return [one(field, version, rng) for _ in range(count)]


def one(field: Field, version: int, rng: random.Random) -> Any:
    """Return a random value of a field, or of an element of it."""
    if field.structure is not None:
        return values_of(field.structure, version, rng)
    if field.type == "string":
        return rng.choice(("", "a", "é" * 100))
    if field.type in ("bytes", "records"):
        return rng.randbytes(rng.choice((0, 1, 300)))
    if field.type == "bool":
        return rng.random() < 0.5
    if field.type == "uuid":
        return rng.choice((bytes(16), b"0123456789abcdef"))
    if field.type == "float64":
        return rng.choice((0.0, -1.5, 1e300))
    if field.name.endswith("error_code"):  # kio has a type for the known error codes
        return rng.choice(CODES)
    return rng.choice((0, -1, NUMBERS[field.type], rng.randint(0, NUMBERS[field.type])))
