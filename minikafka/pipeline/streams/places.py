"""The places of the first records that a pipeline could not convert, as an observed metric of its query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from minikafka.pipeline.session.summary import Table

PLACE: Final = ("topic", "partition", "offset")
PLACES: Final = "places"
"""Name of the observed metric with the places of the first invalid records."""
PLACES_MAX: Final = 5


def first_places(is_invalid: Column, prefix: str = "") -> Column:
    """Return an aggregate: topic, partition and offset of the first `PLACES_MAX` rows that are invalid."""
    place = f.struct(*(f.col(f"{prefix}{name}").alias(name) for name in PLACE))
    return f.min_by(place, f.when(is_invalid, place), PLACES_MAX)


def places_table(name: str, counts: Mapping[str, Any]) -> tuple[Table, ...]:
    """Return a table with the places in the observed metrics `counts`; no table if there are no places."""
    places = counts.get(PLACES) or ()
    return (Table(name, PLACE, tuple(tuple(place) for place in places)),) if places else ()


def added(before: Any, value: Any) -> Any:
    """Return the sum of two metrics of micro-batches. A list of places keeps its first `PLACES_MAX` entries."""
    if isinstance(value, list):
        return [*(before or ()), *map(tuple, value)][:PLACES_MAX]
    return before if value is None else (before or 0) + value
