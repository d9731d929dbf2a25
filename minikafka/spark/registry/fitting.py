"""The check that a schema can hold a column, before a query that encodes the column starts.

Invariant: a column that passes has no value that the schema would shorten, round or leave out. The one exception are
timestamps, whose microseconds a schema with milliseconds does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Final

import pyarrow as pa
from pyarrow import types

from minikafka.base.errors import ConfigError
from minikafka.spark.registry.options import SCHEMA
from minikafka.spark.registry.records import RecordWriting

_SHOWN_MAX: Final = 3


def check(work: RecordWriting, kind: pa.DataType) -> None:
    """Raise ConfigError if the schema cannot hold every value of the type. The text names the field."""
    module = {
        "confluent_avro": "minikafka.spark.registry.avro_fitting",
        "confluent_protobuf": "minikafka.spark.registry.protobuf_fitting",
        "confluent_json": "minikafka.spark.registry.json_fitting",
    }[work.options.format]
    found: Iterator[str] = import_module(module).misfits(work, kind)
    texts = [text for text, _ in zip(found, range(_SHOWN_MAX), strict=False)]
    if texts:
        raise ConfigError(
            f"{SCHEMA}: the schema of {work.options.subject} cannot hold the columns: {'; '.join(texts)}; cast or drop"
            " them in the query, or register a schema that has them"
        )


def column_name(kind: pa.DataType) -> str:
    """Return the name of an Arrow type as a user of Spark writes it."""
    names = {
        "int8": "tinyint",
        "int16": "smallint",
        "int32": "int",
        "int64": "bigint",
        "float": "float",
        "double": "double",
        "bool": "boolean",
        "date32[day]": "date",
    }
    text = str(kind)
    if types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if types.is_nested(kind):
        return text.partition("<")[0].replace("list", "array")
    return names.get(text, text.replace("decimal128", "decimal").removeprefix("large_"))


def is_whole(kind: pa.DataType, bits: int) -> bool:
    """True for whole numbers of at most so many bits."""
    return bool(types.is_signed_integer(kind) and kind.bit_width <= bits)


def missing(kind: pa.DataType, known: Sequence[str], path: str) -> Iterator[str]:
    """Yield a text for each field of a struct that a schema does not know."""
    for one in kind:
        if one.name not in known:
            yield f"it has no field {path}{one.name}"


def is_text(kind: pa.DataType) -> bool:
    """True for text, in both of Arrow's forms."""
    return bool(types.is_string(kind) or types.is_large_string(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """True for bytes, in both of Arrow's forms."""
    return bool(types.is_binary(kind) or types.is_large_binary(kind))
