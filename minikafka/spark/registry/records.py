"""Columns of records decoded and encoded in a task, with the schemas of a registry.

A worker process keeps the decoders of the last queries, and with them every schema that it has requested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.spark.registry.client import RegistryClient, Schema, UnknownSchema
from minikafka.spark.registry.framing import (
    Undecodable,
    encoded_indexes,
    frames,
    header,
    schema_id,
    schema_ids,
)
from minikafka.spark.registry.options import MODE, SCHEMA, SUBJECT, TOPIC, SchemaOptions
from minikafka.spark.registry.shapes import ColumnShape, for_spark

VALUE: Final = "value"
REASON: Final = "reason"
"""The fields of a decoded record: its columns, and why it cannot be decoded (null if it can)."""
_KEPT_MAX: Final = 16
_LIBRARIES: Final = {"confluent_avro": "fastavro", "confluent_protobuf": "google.protobuf"}
_PACKAGES: Final = {"fastavro": "fastavro", "google.protobuf": "protobuf"}
_MISFITS: Final = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, UnicodeEncodeError)
"""Errors of pyarrow about a value that a column cannot hold. JSON has half characters that UTF-8 does not have."""
Read = Callable[[bytes], Any]
_Part = tuple[npt.NDArray[np.int64], pa.Array]
"""Ascending row numbers in a batch, and the values of these rows."""


class UndecodableRecord(MinikafkaError):
    """A record that cannot be decoded has ended the query; the text names its place and the remedy."""


class UnencodableRow(MinikafkaError):
    """A row that its schema cannot hold has ended the query; the text says why."""


@dataclass(frozen=True)
class RecordReading:
    """What a task needs to decode records: the options, and the schema whose fields become columns."""

    options: SchemaOptions
    columns: Schema


@dataclass(frozen=True)
class RecordWriting:
    """What a task needs to encode rows: the options, and the schema of the records."""

    options: SchemaOptions
    schema: Schema


def reading(options: SchemaOptions) -> RecordReading:
    """Return what tasks need to decode records. The driver calls it. Raises ConfigError, RegistryError."""
    _check_library(options)
    client = RegistryClient(options.address)
    if options.schema is None:
        columns = client.of_subject(_subject(options), options.version)
    elif options.type == "PROTOBUF":  # the registry compiles it
        columns = client.look_up(_subject(options), options.type, options.schema)
    else:
        columns = Schema(options.type, options.schema)
    _check_type(options, columns)
    return RecordReading(options, columns)


def writing(options: SchemaOptions) -> RecordWriting:
    """Register the schema if necessary, and return what tasks need to encode rows. The driver calls it."""
    _check_library(options)
    client, subject = RegistryClient(options.address), _subject(options)
    if options.schema is None:
        schema = client.of_subject(subject, options.version)
    elif options.registers:
        schema = client.register(subject, options.type, options.schema)
    else:
        schema = client.look_up(subject, options.type, options.schema)
    _check_type(options, schema)
    return RecordWriting(options, schema)


def _subject(options: SchemaOptions) -> str:
    if options.subject is None:
        raise ConfigError(f"{SUBJECT} is missing: name a subject of the registry, or the {TOPIC}")
    return options.subject


def _check_type(options: SchemaOptions, schema: Schema) -> None:
    if schema.type != options.type:
        raise ConfigError(
            f"{SUBJECT}: the schema of {options.subject} is {schema.type}, not {options.type}; set the format to"
            f" confluent_{schema.type.lower()}, or name another subject"
        )


def _check_library(options: SchemaOptions) -> None:
    """Raise ConfigError if this Python lacks the library of the format."""
    name = _LIBRARIES.get(options.format)
    try:
        if name is not None:
            import_module(name)
    except ModuleNotFoundError:
        raise ConfigError(
            f"{options.format} needs the package {_PACKAGES[str(name)]}: pip install 'minikafka[registry]', also for"
            " the Python of Spark's workers"
        ) from None


def columns_of(work: RecordReading) -> ColumnShape:
    """Return the columns to which records are decoded. Raises ConfigError."""
    if work.options.format == "confluent_avro":
        return ColumnShape(*_avro().shape(work.columns))
    if work.options.format == "confluent_json":
        return ColumnShape(*_json().shape(work.columns))
    protobuf = _protobuf()
    kind = protobuf.message_type(work.columns, work.options.message)
    return ColumnShape(protobuf.arrow_type(kind))


def _avro() -> Any:
    return import_module("minikafka.spark.registry.avro")


def _protobuf() -> Any:
    return import_module("minikafka.spark.registry.protobuf")


def _json() -> Any:
    return import_module("minikafka.spark.registry.json_schema")


@lru_cache(_KEPT_MAX)
def decoder_of(work: RecordReading) -> Decoder:
    """Return the decoder of this process for these records."""
    _check_library(work.options)
    return Decoder(work, RegistryClient(work.options.address))


class _Reader(NamedTuple):
    """The functions that decode records of a schema: one record, and those of a batch as a column.

    `column`: None if each record must be decoded by `read`.
    """

    read: Read
    column: Any = None


class Decoder:
    """Decodes columns of records. It requests the schema of each id once, also if requests for others fail."""

    def __init__(self, work: RecordReading, client: RegistryClient) -> None:
        self._work = work
        self._client = client
        self._shape = columns_of(work)
        self._readers: dict[int, _Reader] = {}
        self.type: Final = pa.struct(
            [pa.field(VALUE, for_spark(self._shape.type)), pa.field(REASON, pa.string())]
        )

    def decode(self, values: pa.Array, places: Sequence[Any]) -> pa.StructArray:
        """Return the decoded records as a struct of value and reason. A null value is null, without a reason.

        `places`: columns with the topic, partition and offset of each record, or empty. Raises UndecodableRecord if
        the mode is failfast, RegistryError.
        """
        unknown: dict[int, str] = {}
        parts = (
            self._columns(values, unknown) if self._work.options.format == "confluent_avro" else []
        )
        is_left = np.ones(len(values), dtype=np.bool_)
        for rows, _ in parts:
            is_left[rows] = False
        left = np.flatnonzero(is_left)
        reasons: dict[int, str] = {}
        if left.size or not parts:
            column, found = self._one_by_one(values.take(pa.array(left)).to_pylist(), unknown)
            parts.append((left, column))
            reasons = {int(left[index]): text for index, text in found.items()}
        if reasons and not self._work.options.is_permissive:
            row = min(reasons)
            part = "the key of " * (self._work.options.part == "key")
            raise UndecodableRecord(
                f"{part}{_where(places, row)}: {reasons[row]}; set {MODE} to permissive to read null instead"
            )
        texts = pa.nulls(len(values), pa.string())
        if reasons:
            texts = pa.array([reasons.get(row) for row in range(len(values))], pa.string())
        return pa.StructArray.from_arrays([_in_order(parts), texts], fields=list(self.type))

    def _columns(self, values: pa.Array, unknown: dict[int, str]) -> list[_Part]:
        """Decode records as columns, and return one part for each schema. It lacks records that `read` must decode."""
        found = frames(values)
        ids = schema_ids(found)
        parts = []
        for number in np.unique(ids[ids >= 0]).tolist():
            try:
                read = self._reader_of(number, unknown).column
            except Undecodable:
                continue
            if read is not None:
                rows = np.flatnonzero(ids == number)
                column, is_read = read(found, rows)
                parts.append(
                    (rows, column)
                    if is_read.all()
                    else (rows[is_read], column.filter(pa.array(is_read)))
                )
        return parts

    def _one_by_one(
        self, records: Sequence[Any], unknown: dict[int, str]
    ) -> tuple[pa.Array, dict[int, str]]:
        """Return the records as a column, and the reason for each one that cannot be decoded."""
        found: list[Any] = []
        reasons: dict[int, str] = {}
        for row, data in enumerate(records):
            try:
                found.append(None if data is None else self._decoded(data, unknown))
            except Undecodable as error:
                found.append(None)
                reasons[row] = str(error)
        return self._column(found, reasons), reasons

    def _decoded(self, data: bytes, unknown: dict[int, str]) -> Any:
        value = self._reader_of(schema_id(data), unknown).read(data)
        change = self._shape.convert
        if change is None or value is None or self._work.options.format == "confluent_json":
            return value
        try:
            return change(value)
        except ArithmeticError:
            raise Undecodable("a decimal has more digits than its schema says") from None

    def _reader_of(self, number: int, unknown: dict[int, str]) -> _Reader:
        """Return the reader of a schema. `unknown`: the reasons for ids that have none in this batch."""
        found = self._readers.get(number)
        if found is not None:
            return found
        if number in unknown:
            raise Undecodable(unknown[number])
        try:
            found = self._readers[number] = self._reader(number)
        except (UnknownSchema, ConfigError) as error:
            unknown[number] = str(error)
            raise Undecodable(unknown[number]) from None
        return found

    def _reader(self, number: int) -> _Reader:
        options, columns = self._work.options, self._work.columns
        schema = columns if number == columns.id else self._client.of_id(number)
        if schema.type != options.type:
            raise UnknownSchema(
                f"its schema with the id {number} is {schema.type}, not {options.type}"
            )
        if options.format == "confluent_avro":
            return _Reader(
                _named(number, _avro().reader(schema, columns)),
                _avro().column_reader(schema, columns),
            )
        if options.format == "confluent_protobuf":
            protobuf = _protobuf()
            kind = protobuf.message_type(columns, options.message)
            return _Reader(_named(number, protobuf.reader(schema, kind)))
        json_schema = _json()
        validate = json_schema.validator(schema) if options.is_validated else None
        return _Reader(_named(number, json_schema.reader(self._shape, validate)))

    def _column(self, found: list[Any], reasons: dict[int, str]) -> pa.Array:
        """Return the decoded values as a column. A value that its type cannot hold gets a reason."""
        kind = for_spark(self._shape.type)
        try:
            return pa.array(found, self._shape.type).cast(kind)
        except _MISFITS:
            pass
        for row, value in enumerate(found):
            try:
                pa.array([value], self._shape.type).cast(kind)
            except _MISFITS as error:
                found[row] = None
                reasons[row] = f"a value does not fit into its column: {_line(error)}"
        return pa.array(found, self._shape.type).cast(kind)


def _named(number: int, read: Read) -> Read:
    """Return the function with the id of the schema in its errors."""

    def named(data: bytes) -> Any:
        try:
            return read(data)
        except Undecodable as error:
            raise Undecodable(f"{error} (schema id {number})") from None

    return named


def _in_order(parts: Sequence[_Part]) -> pa.Array:
    """Return the rows of all parts as one column, in their order."""
    rows = np.concatenate([one for one, _ in parts])
    column = pa.concat_arrays([one for _, one in parts])
    return column if len(parts) == 1 else column.take(pa.array(np.argsort(rows)))


def _where(places: Sequence[Any], row: int) -> str:
    if not places:
        return "a record cannot be decoded"
    topic, partition, offset = (column[row].as_py() for column in places)
    return f"topic {topic}, partition {partition}, offset {offset} cannot be decoded"


@lru_cache(_KEPT_MAX)
def encoder_of(work: RecordWriting) -> Callable[[pa.Array], pa.Array]:
    """Return the function of this process that encodes a column of rows, which are JSON text for `confluent_json`."""
    _check_library(work.options)
    head = header(int(work.schema.id or 0))
    as_columns: Callable[[pa.Array], pa.Array | None] | None = None
    if work.options.format == "confluent_avro":
        write, as_columns = _avro().writer(work.schema), _avro().column_writer(work.schema, head)
    elif work.options.format == "confluent_json":
        write = _json().writer(_json().shape(work.schema))
    else:
        protobuf = _protobuf()
        kind = protobuf.message_type(work.schema, work.options.message)
        head += encoded_indexes(protobuf.indexes_of(kind))
        write = protobuf.writer(kind)

    def encode(rows: pa.Array) -> pa.Array:
        columns = None if as_columns is None else as_columns(rows)
        if columns is not None:
            return columns
        change = _with_dicts(rows.type) if work.options.format == "confluent_avro" else None
        try:
            values = [
                row if change is None or row is None else change(row) for row in rows.to_pylist()
            ]
            found = [None if value is None else head + write(value) for value in values]
        except Exception as error:  # noqa: BLE001  libraries raise many types for values
            raise UnencodableRow(
                f"{SCHEMA}: a row does not fit the schema of {work.options.subject}: {_line(error)}; correct the"
                " row in the query, or register a schema that allows it"
            ) from None
        return pa.array(found, pa.binary())

    return encode


def _with_dicts(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return a function that turns the pairs of maps into dicts; None if the type has no map."""
    if pa.types.is_map(kind):
        change = _with_dicts(kind.item_type)
        if change is None:
            return dict
        of_value = change
        return lambda pairs: {name: None if one is None else of_value(one) for name, one in pairs}
    if pa.types.is_list(kind):
        change = _with_dicts(kind.value_type)
        if change is None:
            return None
        of_item = change
        return lambda items: [None if one is None else of_item(one) for one in items]
    if not pa.types.is_struct(kind):
        return None
    changes = {one.name: found for one in kind if (found := _with_dicts(one.type)) is not None}
    if not changes:
        return None
    return lambda row: {
        name: one if one is None or name not in changes else changes[name](one)
        for name, one in row.items()
    }


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:150] or type(error).__name__
