"""The comparison of two readings of a topic."""

from __future__ import annotations

from minikafka.checks.delivery import Reading

NO_RECORD = object()
"""Stands for the payload of an offset without a record. A payload may be None: a null value."""


def disagreements(first: Reading, second: Reading) -> list[tuple[int, int]]:
    """Compare two readings of a topic. Return each (partition, offset) whose record was lost or changed in between.

    `second` must be the later reading. An offset is returned if `first` has a record there, and `second` has no
    record or another payload. An offset that only `second` contains is not returned, because its record was
    written after the first reading.
    """
    found = []
    for partition, deliveries in first.items():
        later = dict(second.get(partition, ()))
        found += [
            (partition, offset)
            for offset, payload in deliveries
            if later.get(offset, NO_RECORD) != payload
        ]
    return found
