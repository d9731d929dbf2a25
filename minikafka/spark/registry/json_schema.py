"""JSON: the columns of a JSON Schema, documents decoded to them, and documents encoded from them.

A property whose type is not a single one is a column of text with the JSON value. So is an object of which the schema
says nothing more: its text is decoded and encoded. Properties that the schema does not name are left out. Every column
may be null.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa

from minikafka.base.errors import ConfigError
from minikafka.spark.registry.client import Schema
from minikafka.spark.registry.framing import HEADER_BYTES, Undecodable
from minikafka.spark.registry.options import SCHEMA, VALIDATE
from minikafka.spark.registry.shapes import ColumnShape

_DEPTH_MAX: Final = 50
_REFERENCE: Final = "$ref"
Read = Callable[[bytes], Any]


def shape(schema: Schema) -> ColumnShape:
    """Return the columns of a schema. Raises ConfigError."""
    whole = document(schema)
    documents = _documents(schema)
    if isinstance(whole, Mapping) and isinstance(whole.get("$id"), str):
        documents[whole["$id"]] = whole
    try:
        return _Shapes(documents).of(whole, "", 0)
    except (TypeError, AttributeError):
        raise ConfigError(f"{SCHEMA}: it is no JSON Schema: {schema.text[:40]}") from None


def document(schema: Schema) -> Any:
    """Return the schema as JSON. Raises ConfigError."""
    return _json(schema.text, "it")


def reader(columns: ColumnShape, validate: Callable[[Any], None] | None) -> Read:
    """Return a function that decodes a record to the columns. It raises Undecodable."""
    convert = columns.convert
    assert convert is not None, "all shapes of this module check their values"

    def read(data: bytes) -> Any:
        try:
            found = json.loads(data[HEADER_BYTES:], parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise Undecodable("its bytes are no JSON") from None
        if validate is not None:
            validate(found)
        return None if found is None else convert(found)

    return read


def writer(columns: ColumnShape) -> Callable[[str], bytes] | None:
    """Return a function that changes Spark's JSON text of a row to the document of a record; None if they are equal.

    It keeps the digits of all numbers, and raises ValueError for a row that the schema cannot hold.
    """
    embed = columns.embed
    if embed is None:
        return None
    change = embed

    def write(text: str) -> bytes:
        return _text(change(_exact(text))).encode()

    return write


class _Number(str):
    """A number as its text."""

    __slots__ = ()


def _exact(text: str) -> Any:
    return json.loads(text, parse_int=_Number, parse_float=_Number, parse_constant=_no_number)


def _text(value: Any) -> str:
    """Return the JSON text of a value of `_exact`."""
    if isinstance(value, _Number):
        return value
    if isinstance(value, dict):
        return f"{{{','.join(f'{_text(name)}:{_text(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_text, value))}]"
    return json.dumps(value, ensure_ascii=False)


def validator(schema: Schema) -> Callable[[Any], None]:
    """Return a function that raises Undecodable for a document that does not match the schema."""
    try:
        import jsonschema
        import referencing
        import referencing.jsonschema as drafts
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{VALIDATE} needs the package {error.name}: pip install jsonschema"
        ) from None
    documents = _documents(schema)
    whole = document(schema)
    default = drafts.DRAFT7
    resources = [
        (name, referencing.Resource.from_contents(one, default_specification=default))
        for name, one in documents.items()
    ]
    kind = jsonschema.validators.validator_for(whole, default=jsonschema.Draft7Validator)
    try:
        kind.check_schema(whole)
    except jsonschema.exceptions.SchemaError as error:
        raise ConfigError(f"{SCHEMA}: it is no valid JSON Schema: {error.message[:120]}") from None
    checker = kind(whole, registry=referencing.Registry().with_resources(resources))

    def validate(document: Any) -> None:
        error = jsonschema.exceptions.best_match(checker.iter_errors(document))
        if error is not None:
            place = f" at {error.json_path}" if error.path else ""
            raise Undecodable(f"it does not match its schema{place}: {error.message[:120]}")

    return validate


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is no JSON")


def _documents(schema: Schema) -> dict[str, Any]:
    return {name: _json(text, f"its reference {name}") for name, text in schema.references}


def _json(text: str, what: str) -> Any:
    try:
        found = json.loads(text)
    except ValueError:
        raise ConfigError(f"{SCHEMA}: {what} is no JSON Schema: {text[:40]}") from None
    if not isinstance(found, dict | bool):
        raise ConfigError(f"{SCHEMA}: {what} is no JSON Schema: {text[:40]}")
    return found


class _Shapes:
    """The shapes of the schemas of one document, and of the documents that it refers to."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents
        self._root: Any = None

    def of(self, schema: Any, path: str, depth: int) -> ColumnShape:
        """Return the shape of a schema. `path`: its place in the document, for messages about values."""
        if self._root is None:
            self._root = schema
        if depth > _DEPTH_MAX:
            raise ConfigError(
                f"{SCHEMA}: {path[:60]} contains itself, which no column can; name a schema without it"
            )
        if not isinstance(schema, Mapping):
            return _TEXT
        if _REFERENCE in schema:
            return self._referred(str(schema[_REFERENCE]), path, depth)
        if (only := _only(schema)) is not None:
            return self.of(only, path, depth + 1)
        kind = _type(schema)
        if kind == "object":
            return self._object(schema, path, depth)
        if kind == "array":
            return _list(self.of(schema.get("items"), f"{path}[]", depth + 1), path)
        return _scalar(kind, path)

    def _referred(self, reference: str, path: str, depth: int) -> ColumnShape:
        name, _, pointer = reference.partition("#")
        before = self._root
        document = before if not name else self._documents.get(name)
        if document is None:
            raise ConfigError(
                f"{SCHEMA}: it refers to {name}, which is not among its references in the registry; register it"
                " with the reference"
            )
        found: Any = document
        for part in filter(None, unquote(pointer).split("/")):
            key = part.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, Mapping) else None
        if found is None:
            raise ConfigError(f"{SCHEMA}: it refers to {reference}, which is not there; correct it")
        self._root = document
        try:
            return self.of(found, path, depth + 1)
        finally:
            self._root = before

    def _object(self, schema: Mapping[str, Any], path: str, depth: int) -> ColumnShape:
        properties = schema.get("properties")
        if isinstance(properties, Mapping) and properties:
            fields = {
                str(name): self.of(one, f"{path}.{name}" if path else str(name), depth + 1)
                for name, one in properties.items()
            }
            return _record(fields, path)
        others = schema.get("additionalProperties")
        if isinstance(others, Mapping):
            return _map(self.of(others, f"{path}.*", depth + 1), path)
        return _object_text(path)


def _only(schema: Mapping[str, Any]) -> Any:
    """Return the schema next to null in a choice of two, or the only one of a list; None if there is no such one."""
    for word in ("oneOf", "anyOf", "allOf"):
        choices = schema.get(word)
        if isinstance(choices, list) and "type" not in schema:
            others = [one for one in choices if not _is_null(one)]
            return others[0] if len(others) == 1 else None
    return None


def _is_null(schema: Any) -> bool:
    """True if a schema allows null alone. Java's generators add a title to it."""
    return isinstance(schema, Mapping) and schema.get("type") == "null"


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of a schema next to null; "" if it is not a single one."""
    kinds = schema.get("type", "object" if "properties" in schema else ())
    others = [one for one in ([kinds] if isinstance(kinds, str) else kinds) if one != "null"]
    if sorted(others) == ["integer", "number"]:
        return "number"
    return str(others[0]) if len(others) == 1 else ""


def _wrong(path: str, kind: str, value: Any) -> Undecodable:
    where = path or "the document"
    return Undecodable(f"{where} is not of the type {kind}: {json.dumps(value)[:60]}")


def _scalar(kind: str, path: str) -> ColumnShape:
    if kind == "integer":
        return ColumnShape(pa.int64(), lambda value: _integer(value, path))
    if kind == "number":
        return ColumnShape(pa.float64(), lambda value: _number(value, path))
    if kind == "boolean":
        return ColumnShape(pa.bool_(), lambda value: _exactly(bool, value, path, kind))
    if kind == "string":
        return ColumnShape(pa.string(), lambda value: _exactly(str, value, path, kind))
    return _TEXT


_TEXT: Final = ColumnShape(
    pa.string(), lambda value: value if isinstance(value, str) else json.dumps(value)
)


def _integer(value: Any, path: str) -> int:
    if type(value) is float and value.is_integer():
        value = int(value)  # JSON Schema: 1.0 is an integer
    if type(value) is not int or not -(2**63) <= value < 2**63:
        raise _wrong(path, "integer", value)
    return value


def _number(value: Any, path: str) -> float:
    if type(value) not in (int, float):
        raise _wrong(path, "number", value)
    try:
        return float(value)
    except OverflowError:
        raise _wrong(path, "number", value) from None


def _exactly(kind: type, value: Any, path: str, name: str) -> Any:
    if type(value) is not kind:
        raise _wrong(path, name, value)
    return value


def _object_text(path: str) -> ColumnShape:
    def convert(value: Any) -> str:
        if type(value) is not dict:
            raise _wrong(path, "object", value)
        return json.dumps(value)

    def embed(text: Any) -> Any:
        try:
            found = _exact(text)
        except (ValueError, TypeError, RecursionError):
            found = None
        if type(found) is not dict:
            where = path or "the value"
            raise ValueError(f"{where} is not the text of a JSON object: {str(text)[:60]!r}")
        return found

    return ColumnShape(pa.string(), convert, embed)


def _record(fields: Mapping[str, ColumnShape], path: str) -> ColumnShape:
    changes = [(name, one.convert) for name, one in fields.items()]

    def convert(value: Any) -> dict[str, Any]:
        if type(value) is not dict:
            raise _wrong(path, "object", value)
        return {
            name: change(value[name])
            for name, change in changes
            if change is not None and value.get(name) is not None
        }

    embedded = {name: one.embed for name, one in fields.items() if one.embed is not None}

    def embed(value: dict[str, Any]) -> dict[str, Any]:
        return {
            name: embedded[name](one) if name in embedded and one is not None else one
            for name, one in value.items()
        }

    kind = pa.struct([pa.field(name, one.type) for name, one in fields.items()])
    return ColumnShape(kind, convert, embed if embedded else None)


def _map(item: ColumnShape, path: str) -> ColumnShape:
    change = item.convert
    assert change is not None, "all shapes of this module check their values"

    def convert(value: Any) -> list[tuple[str, Any]]:
        if type(value) is not dict:
            raise _wrong(path, "object", value)
        return [(name, None if one is None else change(one)) for name, one in value.items()]

    kind, inner = pa.map_(pa.string(), item.type), item.embed
    if inner is None:
        return ColumnShape(kind, convert)
    embed = inner
    return ColumnShape(
        kind,
        convert,
        lambda value: {name: None if one is None else embed(one) for name, one in value.items()},
    )


def _list(item: ColumnShape, path: str) -> ColumnShape:
    change = item.convert
    assert change is not None, "all shapes of this module check their values"

    def convert(value: Any) -> list[Any]:
        if type(value) is not list:
            raise _wrong(path, "array", value)
        return [None if one is None else change(one) for one in value]

    kind, inner = pa.list_(item.type), item.embed
    if inner is None:
        return ColumnShape(kind, convert)
    embed = inner
    return ColumnShape(
        kind, convert, lambda value: [None if one is None else embed(one) for one in value]
    )
