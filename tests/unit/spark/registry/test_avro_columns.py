"""Avro decoded and encoded as columns is what fastavro decodes and encodes one by one."""

from __future__ import annotations

import functools
import json
import struct
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

pytest.importorskip("fastavro")

from support.spark.random_avro import Bytes, Schemas, damaged, evolved, varint

from minikafka.base.errors import ConfigError
from minikafka.spark.registry import avro, fitting, records
from minikafka.spark.registry.client import Schema
from minikafka.spark.registry.framing import header
from minikafka.spark.registry.options import parse_decode, parse_encode

AT = {"schema.registry.url": "http://none", "topic": "t"}
SEEDS = range(60)


class Schemata:
    """The schemas of a registry, whose ids are their places from 1."""

    def __init__(self, *schemas: Any) -> None:
        self.all = [
            Schema("AVRO", json.dumps(one), (), place) for place, one in enumerate(schemas, 1)
        ]

    def of_id(self, number: int) -> Schema:
        return self.all[number - 1]

    def decoded(self, data: Sequence[bytes | None], columns: int = 1) -> pa.StructArray:
        """Return records decoded to the columns of a schema, in the mode permissive."""
        work = records.RecordReading(
            parse_decode("confluent_avro", AT | {"mode": "permissive"}), self.of_id(columns)
        )
        return records.Decoder(work, self).decode(pa.array(data, pa.binary()), ())

    def encoded(self, rows: pa.Array) -> list[bytes | None] | str:
        """Return rows encoded with the first schema, or the error."""
        records.encoder_of.cache_clear()
        work = records.RecordWriting(parse_encode("confluent_avro", AT), self.of_id(1))
        try:
            found: list[bytes | None] = records.encoder_of(work)(rows).to_pylist()
            return found
        except records.UnencodableRow as error:
            return str(error)


@pytest.fixture
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that calls another while nothing is decoded or encoded as a column."""

    def run(call: Callable[..., Any], *arguments: Any) -> Any:
        with monkeypatch.context() as patched:
            patched.setattr(avro, "column_reader", lambda *_: None)
            patched.setattr(avro, "column_writer", lambda *_: lambda _: None)
            return call(*arguments)

    return run


@pytest.fixture
def only_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every call fail that decodes or encodes one by one."""

    def fail(*_: Any) -> Any:
        raise AssertionError("decoded or encoded one by one")

    monkeypatch.setattr(avro, "reader", lambda *_: fail)
    monkeypatch.setattr(avro, "writer", lambda *_: fail)


def text_of(column: pa.Array) -> str:
    """Return all values as text, in which NaN equals itself, and times are numbers."""
    return repr(column.cast(_without_times(column.type)).to_pylist())


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _without_times(one.type)) for one in kind])
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, _without_times(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date(kind) else kind


def record(*types: Any) -> dict[str, Any]:
    fields = [{"name": f"f{index}", "type": one} for index, one in enumerate(types)]
    return {"type": "record", "name": "R", "fields": fields}


def test_random_records_of_random_schemas_are_decoded_to_the_same_values(one_by_one):
    for seed in SEEDS:
        made = Schemas(seed, is_usual=seed % 5 > 0)
        schema, rng = made.record(), made.rng
        given = Schemata(schema)
        data = [header(1) + Bytes(rng).of(schema) for _ in range(60)]
        data = [damaged(one, rng) if rng.random() < 0.1 else one for one in data]
        data += [None, b"", b"{}x"]
        rng.shuffle(data)
        found, expected = given.decoded(data), one_by_one(given.decoded, data)
        found.validate(full=True)
        assert found.type == expected.type
        assert text_of(found) == text_of(expected), f"seed {seed}: {json.dumps(schema)}"


def test_random_records_of_two_versions_are_decoded_to_the_columns_of_each(one_by_one):
    for seed in SEEDS:
        made = Schemas(seed)
        before, rng = made.record(), made.rng
        versions = (before, evolved(before, rng))
        given = Schemata(*versions)
        data = [
            header(number) + Bytes(rng).of(schema)
            for number, schema in enumerate(versions, 1)
            for _ in range(20)
        ]
        data = [damaged(one, rng) if rng.random() < 0.1 else one for one in data]
        rng.shuffle(data)
        for columns in (1, 2):
            found, expected = given.decoded(data, columns), one_by_one(given.decoded, data, columns)
            assert text_of(found) == text_of(expected), f"seed {seed}: {json.dumps(versions)}"


def test_random_rows_are_encoded_to_the_same_bytes(one_by_one):
    for seed in SEEDS:
        made = Schemas(seed)
        schema = made.record()
        given = Schemata(schema)
        make = Bytes(made.rng, with_far_times=False)
        data = [None, *[header(1) + make.of(schema) for _ in range(40)]]
        rows = given.decoded(data).field("value")
        found, expected = given.encoded(rows), one_by_one(given.encoded, rows)
        assert found == expected, f"seed {seed}: {json.dumps(schema)}"
        assert given.encoded(rows[7:19]) == expected[7:19]


def test_no_record_of_a_usual_schema_is_decoded_or_encoded_alone(only_columns):
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
    letter = {"type": "enum", "name": "Letter", "symbols": ["A", "B"]}
    before = record("long", ["null", "string"], {"type": "array", "items": kind}, ["null", price])
    after = {**before, "fields": [*before["fields"]]}
    after["fields"].append({"name": "n", "type": letter, "default": "B"})
    data = [
        header(1) + varint(5) + b"\x02" + varint(1) + b"x" + b"\x04\x02\x04\x00" + b"\x00",
        header(1) + varint(6) + b"\x00" + b"\x00" + b"\x02\x04\x01\x02",
        header(2) + varint(7) + b"\x00" + b"\x00" + b"\x00" + b"\x00",
    ]
    given = Schemata(before, after)
    found = given.decoded(data, 2)
    assert found.field("reason").null_count == 3
    rows = found.field("value")
    assert [row["n"] for row in rows.to_pylist()] == ["B", "B", "A"]
    columns = [rows.field(one["name"]) for one in before["fields"]]
    plain = pa.StructArray.from_arrays(columns, [one["name"] for one in before["fields"]])
    assert given.encoded(plain)[:2] == data[:2]


@pytest.mark.parametrize(
    ("schema", "data"),
    [
        ("string", varint(2) + b"\xc3\x28"),
        ("string", varint(-1)),
        ("string", varint(2**62)),
        ("int", varint(2**31)),
        ("long", b"\xff" * 9 + b"\x01"),
        ("long", b"\xff" * 10 + b"\x01"),
        ("long", b"\x80\x00"),
        ("boolean", b"\x02"),
        (["null", "int"], varint(-1) + varint(7)),
        (["null", "int"], varint(2)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, varint(1)),
        ({"type": "array", "items": "int"}, varint(2**40)),
        ({"type": "array", "items": "int"}, varint(-(2**63)) + b"\0\0"),
        ({"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}}, varint(9) + b"\0"),
        ({"type": "array", "items": "int"}, varint(300) + b"\x02" * 300 + b"\0"),
        ({"type": "map", "values": "int"}, varint(2) + b"\x02k\x02\x02k\x04\0"),
        ({"type": "long", "logicalType": "timestamp-millis"}, varint(2**62)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, varint(1) + b"\x64"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, varint(17) + bytes(17)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2}, varint(0)),
    ],
)
def test_unusual_bytes_are_decoded_or_refused_as_by_fastavro(one_by_one, schema, data):
    given = Schemata(record("string", schema, "long"))
    usual = header(1) + varint(1) + b"x" + Bytes(Schemas(1).rng).of(schema) + b"\x02"
    rows = [usual, header(1) + varint(1) + b"x" + data + b"\x02", usual]
    found, expected = given.decoded(rows), one_by_one(given.decoded, rows)
    assert text_of(found) == text_of(expected)
    assert found.field("reason")[0].as_py() is None


def test_named_type_that_was_optional_is_decoded(one_by_one):
    price = {
        "type": "fixed",
        "name": "P",
        "size": 2,
        "logicalType": "decimal",
        "precision": 4,
    }
    letter = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    given = Schemata(record(["null", price], ["null", letter]), record(price, letter))
    data = [header(1) + b"\x02\x00\x07\x02\x02"]
    for found in (given.decoded(data, 2), one_by_one(given.decoded, data, 2)):
        assert found.to_pylist() == [{"value": {"f0": 7, "f1": "B"}, "reason": None}]


def test_defaults_of_bytes_and_of_records_are_those_of_the_schema(one_by_one):
    place = {
        "type": "record",
        "name": "Place",
        "fields": [{"name": "m", "type": {"type": "map", "values": "int"}}],
    }
    price = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}
    new = record("int", "bytes", price, place)
    for field, default in zip(
        new["fields"][1:], ("\u00ff", "\u0001", {"m": {"k": 1}}), strict=True
    ):
        field["default"] = default
    given = Schemata(new, record("int"))
    for decoded in (given.decoded, lambda *given_data: one_by_one(given.decoded, *given_data)):
        for row in decoded([header(2) + b"\x02"] * 2).field("value").to_pylist():
            assert (row["f1"], str(row["f2"]), row["f3"]) == (b"\xff", "0.1", {"m": [("k", 1)]})
    rows = pa.array([{"f0": 1}], pa.struct([("f0", pa.int32())]))
    data = [header(1) + b"\x02" + b"\x02\xff" + b"\x02\x01" + b"\x02\x02k\x02\x00"]
    assert given.encoded(rows) == one_by_one(given.encoded, rows) == data


def test_text_that_is_not_utf8_is_refused(one_by_one):
    damaged_text = pa.array([b"\xc3\x28"]).view(pa.string())
    rows = pa.StructArray.from_arrays([damaged_text], ["f0"])
    given = Schemata(record("string"))
    assert given.encoded(rows) == one_by_one(given.encoded, rows)
    assert "can't decode byte 0xc3" in str(given.encoded(rows))


def test_columns_of_other_types_are_encoded_to_the_same_bytes(one_by_one):
    """Numbers that are narrower, times with more digits, decimals with fewer, and a map with a key twice."""
    millis = {"type": "long", "logicalType": "timestamp-millis"}
    price = {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 5}
    schema = record(
        "long", "double", ["null", "double"], {"type": "array", "items": ["null", millis]}, price,
        {"type": "map", "values": millis},
    )  # fmt: skip
    time = pa.timestamp("us", "Europe/Berlin")
    early = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    kinds = [
        pa.int16(), pa.int32(), pa.float32(), pa.list_(time), pa.decimal128(7, 2), pa.map_(pa.string(), time)
    ]  # fmt: skip
    values = [
        [[5], [-7], [1.5], [[early, None]], [None], [[]]],
        [[5], [-7], [None], [[early]], [-0], [[("a", early)]]],
        [[5], [-7], [0.1], [None], [1], [[]]],
        [[5], [-7], [0.1], [[]], [128], [[("a", early), ("a", early)]]],
    ]
    given = Schemata(schema)
    for row in values:
        columns = [pa.array(one, kind) for one, kind in zip(row, kinds, strict=True)]
        rows = pa.StructArray.from_arrays(columns, [one["name"] for one in schema["fields"]])
        assert given.encoded(rows) == one_by_one(given.encoded, rows)


def test_bytes_of_a_null_decimal_are_ignored(one_by_one):
    kind = {"type": "bytes", "logicalType": "decimal", "precision": 38}
    data = np.zeros((2, 16), dtype=np.uint8)
    data[0, -1] = 0x80  # a number of more than 38 digits
    buffers = [pa.py_buffer(b"\x02"), pa.py_buffer(data)]
    column = pa.Array.from_buffers(pa.decimal128(38, 0), 2, buffers)
    rows = pa.StructArray.from_arrays([column], ["f0"])
    given = Schemata(record(["null", kind]))
    assert given.encoded(rows) == one_by_one(given.encoded, rows)


SYMBOL = {"type": "enum", "name": "S", "symbols": ["A"]}
INNER = {
    "type": "record",
    "name": "In",
    "fields": [
        {"name": "a", "type": "int", "default": 7},
        {"name": "b", "type": ["null", "string"], "default": None},
    ],
}


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (INNER, {}, {"a": 7, "b": None}),
        ({"type": "array", "items": INNER}, [{"b": "x"}], [{"a": 7, "b": "x"}]),
        ([INNER, "int"], {}, {"member0": {"a": 7, "b": None}, "member1": None}),
        (["int", SYMBOL], "A", {"member0": None, "member1": "A"}),
        (["double", "string"], 1, {"member0": 1.0, "member1": None}),
    ],
)
def test_defaults_in_records_and_unions_are_those_of_sparks_from_avro(
    one_by_one, kind, default, expected
):
    new = record("int", kind)
    new["fields"][1]["default"] = default
    given = Schemata(new, record("int"))
    for decoded in (given.decoded, lambda *given_data: one_by_one(given.decoded, *given_data)):
        [row] = decoded([header(2) + b"\x02"]).field("value").to_pylist()
        assert row == {"f0": 1, "f1": expected}


@pytest.mark.parametrize(
    ("branches", "narrow", "wide"),
    [
        (["int", "long", "string"], b"\x0a", b"\x0a"),
        (["float", "double", "null", "string"], struct.pack("<f", 5), struct.pack("<d", 5)),
        (
            ["int", {"type": "long", "logicalType": "timestamp-millis"}, "boolean"],
            b"\x0a",
            b"\x0a",
        ),
    ],
)
def test_numbers_of_a_union_are_in_the_columns_of_their_types(branches, narrow, wide):
    union = {"type": "array", "items": branches}
    given = Schemata(record("int", "long", union))
    items = [b"\x00" + narrow, b"\x02" + wide]
    data = header(1) + b"\x02\x04\x04" + b"".join(items) + b"\x00"
    [row] = given.decoded([data]).field("value").to_pylist()
    assert [[name for name in one if one[name] is not None] for one in row["f2"]] == [
        ["member0"],
        ["member1"],
    ]


def test_int_and_long_are_one_column_also_with_a_logical_type():
    given = Schemata(record(["null", {"type": "int", "logicalType": "date"}, "long"]))
    rows = given.decoded([header(1) + b"\x02\x0a", header(1) + b"\x04\x0c"]).field("value")
    assert rows.to_pylist() == [{"f0": 5}, {"f0": 6}]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, b"0123456789abcdef"),
        ({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, b"0123456789ab"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, b"\x0a"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 50}, b"\x02\x07"),
        ({"type": "string", "logicalType": "date"}, b"\x02x"),
        ({"type": "int", "logicalType": 5}, b"\x0a"),
    ],
)
def test_values_of_logical_types_without_a_column_of_their_own_are_encoded_as_they_were(
    one_by_one, kind, data
):
    given = Schemata(record(kind))
    records_before = [header(1) + data]
    rows = given.decoded(records_before).field("value")
    work = records.RecordWriting(parse_encode("confluent_avro", AT), given.of_id(1))
    fitting.check(work, rows.type)
    assert given.encoded(rows) == one_by_one(given.encoded, rows) == records_before


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "record", "name": "R", "fields": [{"name": "a", "type": {"type": "enum", "name": "E"}}]}, "symbols"),
        (record({"type": {"type": "string"}}), "must be a name, a list or an object"),
        (record({"type": "array"}), "a type lacks 'items'"),
        (5, "must be a name, a list or an object"),
        (record(functools.reduce(lambda kind, _: {"type": "array", "items": kind}, range(600), "int")), "too deeply"),
    ],
)  # fmt: skip
def test_schema_that_is_not_valid_is_refused_with_a_sentence(schema, reason):
    with pytest.raises(ConfigError, match="schema: it is no valid Avro schema: ") as caught:
        avro.shape(Schema("AVRO", json.dumps(schema)))
    assert reason in str(caught.value)


def test_record_of_another_name_is_refused_with_both_names():
    other = record("int") | {"name": "Other"}
    found = Schemata(record("int"), other).decoded([header(2) + b"\x02"])
    assert found.to_pylist() == [
        {
            "value": None,
            "reason": "its schema cannot be read as the columns: it is a record Other, and the columns are those of R"
            " (schema id 2)",
        }
    ]
