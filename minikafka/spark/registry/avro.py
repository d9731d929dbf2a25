"""Avro: the columns of a schema, and functions that decode and encode records.

Most records are decoded and encoded as columns (`column_reader`, `column_writer`). fastavro decodes and encodes the
others one by one (`reader`, `writer`). It reads logical types as the numbers and bytes that stand for them, because
pyarrow converts them faster, as columns.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import fastavro
import pyarrow as pa

from minikafka.base.errors import ConfigError
from minikafka.spark.registry import avro_decode, avro_encode
from minikafka.spark.registry.avro_shapes import BOXES, boxed, from_json, name_of, shape_of
from minikafka.spark.registry.client import Schema
from minikafka.spark.registry.framing import HEADER_BYTES, Undecodable
from minikafka.spark.registry.options import SCHEMA
from minikafka.spark.registry.shapes import ColumnShape

_OF_LOGICAL: Final = ("logicalType", "precision", "scale")

Read = Callable[[bytes], Any]


def shape(schema: Schema) -> ColumnShape:
    """Return the type of the column to which records of a schema are decoded.

    Raises ConfigError if the schema is not valid, or Spark has no type for it.
    """
    with _refusing():
        return shape_of(expanded(schema))


def expanded(schema: Schema) -> Any:
    """Return a schema as JSON in which each name of a type is replaced by its definition.

    Raises ConfigError if the schema is not valid.
    """
    with _refusing():
        return fastavro.schema.expand_schema(_parsed(schema, keeps_logical=True))


def reader(schema: Schema, columns: Schema) -> Read:
    """Return a function that decodes one record.

    `schema`: the schema with which the record was written. `columns`: the schema of the decoded value. The function
    gets the record with its header, and raises Undecodable.
    """
    writer = _parsed(schema, keeps_logical=False)
    target = None if _is_same(schema, columns) else _with_defaults(columns, keeps_logical=False)

    def read(data: bytes) -> Any:
        stream = io.BytesIO(data)
        stream.seek(HEADER_BYTES)
        try:
            found = fastavro.schemaless_reader(
                stream, writer, target, return_named_type=True, return_record_name_override=True
            )
        except EOFError:
            raise Undecodable("its bytes end too early") from None
        except fastavro.read.SchemaResolutionError as error:
            text = _other_record(writer, target) or _line(error)
            raise Undecodable(f"its schema cannot be read as the columns: {text}") from None
        except Exception as error:  # noqa: BLE001  fastavro raises many types for damaged bytes
            raise Undecodable(f"its bytes do not fit its schema: {_line(error)}") from None
        if stream.tell() != len(data):
            raise Undecodable(f"{len(data) - stream.tell()} bytes follow the end of its data")
        return found

    return read


def column_reader(schema: Schema, columns: Schema) -> avro_decode.ColumnRead | None:
    """Return a function that decodes the records of a batch as one column, or None if the schemas are unusual.

    The column has the values that `reader` returns for each record.
    """
    return avro_decode.column_reader(expanded(schema), expanded(columns))


def column_writer(schema: Schema, head: bytes) -> Callable[[pa.Array], pa.Array | None]:
    """Return a function that encodes a column of rows. It returns None if `writer` must encode each row.

    `head`: the bytes before the data of each record.
    """
    return avro_encode.column_writer(expanded(schema), head)


def writer(schema: Schema) -> Callable[[Any], bytes]:
    """Return a function that encodes one row as a record without its header.

    The function raises ValueError, TypeError and other errors of fastavro if the row does not fit the schema.
    """
    parsed = _with_defaults(schema, keeps_logical=True)

    def write(value: Any) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, parsed, value, strict_allow_default=True)
        return stream.getvalue()

    return write


def _is_same(one: Schema, other: Schema) -> bool:
    return (one.text, one.references) == (other.text, other.references)


def _other_record(written: Any, wanted: Any) -> str:
    """Return that two records have different names; "" if the schemas differ in another way."""
    names = [one.get("name", "") for one in (written, wanted) if name_of(one) == "record"]
    if len(names) < 2 or names[0].rpartition(".")[2] == names[1].rpartition(".")[2]:
        return ""
    return f"it is a record {names[0]}, and the columns are those of {names[1]}"


def _with_defaults(schema: Schema, *, keeps_logical: bool) -> Any:
    """Return a schema parsed by fastavro, in which the defaults of bytes are bytes instead of text."""
    named: dict[str, Any] = {}
    parsed = _parsed(schema, named, keeps_logical=keeps_logical)
    for one in named.values():
        for field in one.get("fields", ()):
            if "default" in field:
                field["default"] = from_json(field["type"], field["default"], named)
    return parsed


def _parsed(schema: Schema, named: dict[str, Any] | None = None, *, keeps_logical: bool) -> Any:
    """Return a schema parsed by fastavro, and add its named types to `named`.

    `keeps_logical`: False removes all logical types. Raises ConfigError if the schema is not valid.
    """
    named = {} if named is None else named
    texts = [*(text for _, text in schema.references), schema.text]
    with _refusing():
        for one in () if keeps_logical else BOXES:
            fastavro.parse_schema(one, named)
        for text in texts:
            found = fastavro.parse_schema(_json(text, keeps_logical=keeps_logical), named)
    return found


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise ConfigError for the errors of fastavro about a schema that is not valid."""
    try:
        yield
    except (fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        reason = _line(error)
    except KeyError as error:
        reason = f"a type lacks {error}"
    except RecursionError:
        reason = "its types are nested too deeply"
    except (TypeError, AttributeError):
        reason = "a type must be a name, a list or an object with a type"
    else:
        return
    raise ConfigError(f"{SCHEMA}: it is no valid Avro schema: {reason}; correct it")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


def _json(text: str, *, keeps_logical: bool) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        if text.strip().isidentifier():  # registries return a primitive type as a plain word
            return text.strip()
        raise ConfigError(f"{SCHEMA}: an Avro schema must be JSON: {text[:40]}") from None
    return found if keeps_logical else _without_logical(found)


def _without_logical(schema: Any) -> Any:
    """Return the schema without logical types: fastavro then decodes a timestamp as a number, for example."""
    if isinstance(schema, list):
        return boxed([_without_logical(one) for one in schema])
    if not isinstance(schema, dict):
        return schema
    hidden = _OF_LOGICAL if isinstance(schema.get("logicalType"), str) else ()
    found = {name: part for name, part in schema.items() if name not in hidden}
    for name in ("type", "items", "values"):
        if name in found:
            found[name] = _without_logical(found[name])
    if "fields" in found:
        found["fields"] = [_without_logical(one) for one in found["fields"]]
    return found
