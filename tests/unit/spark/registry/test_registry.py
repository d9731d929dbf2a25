"""Records decoded and encoded without Spark, with a registry that answers on a port."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2
from support.spark.schema_registry import StandInRegistry, running_registry

from minikafka.base.errors import ConfigError, MinikafkaError
from minikafka.spark.registry import client, fitting
from minikafka.spark.registry.client import RegistryError
from minikafka.spark.registry.framing import encoded_indexes, header, message_indexes
from minikafka.spark.registry.options import parse_decode, parse_encode
from minikafka.spark.registry.records import (
    Decoder,
    UndecodableRecord,
    UnencodableRow,
    columns_of,
    decoder_of,
    encoder_of,
    reading,
    writing,
)

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"], "default": None},
    ],
}
WITH_PLACE = {
    **ORDER,
    "fields": [*ORDER["fields"], {"name": "place", "type": "string", "default": "?"}],
}
NARROW = {**ORDER, "fields": [{"name": "id", "type": "int"}, ORDER["fields"][1]]}
ALL = {
    "type": "record",
    "name": "All",
    "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {
            "name": "price",
            "type": [
                "null",
                {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            ],
        },
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": ["null", "Kind"]},
        {"name": "counts", "type": {"type": "map", "values": ["null", "long"]}},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}
                    ],
                },
            },
        },
        {"name": "line", "type": ["null", "Line"]},
    ],
}
ROW = {
    "ts": NOON,
    "day": date(2026, 3, 1),
    "price": Decimal("-12.34"),
    "kind": "A",
    "other": "B",
    "counts": [("a", 1), ("b", None)],
    "lines": [{"at": NOON}],
    "line": {"at": NOON},
}


@pytest.fixture
def registry() -> Iterator[StandInRegistry]:
    with running_registry() as running:
        yield running


@pytest.fixture(autouse=True)
def no_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_SECONDS", 0.0)


def decoder(registry: StandInRegistry, kind: str, **options: str) -> Decoder:
    given = {"schema.registry.url": registry.url, "topic": "orders", **options}
    named = {name.replace("__", "."): text for name, text in given.items()}
    return decoder_of(reading(parse_decode(kind, named)))


def encoded(
    registry: StandInRegistry, kind: str, rows: Sequence[Any], column: pa.DataType, **options: str
) -> list[bytes | None]:
    given = {"schema.registry.url": registry.url, "topic": "orders", **options}
    named = {name.replace("__", "."): text for name, text in given.items()}
    work = writing(parse_encode(kind, named))
    fitting.check(work, column)
    found: list[bytes | None] = encoder_of(work)(pa.array(rows, column)).to_pylist()
    return found


def rows_of(found: pa.StructArray) -> list[tuple[Any, str | None]]:
    return [(one["value"], one["reason"]) for one in found.to_pylist()]


def decode(running: Decoder, *records: bytes | None) -> list[tuple[Any, str | None]]:
    return rows_of(running.decode(pa.array(records, pa.binary()), ()))


def avro(registry: StandInRegistry, schema: Mapping[str, Any], *rows: Any) -> list[bytes | None]:
    kind = columns_of(
        reading(
            parse_decode(
                "confluent_avro",
                {"schema.registry.url": registry.url, "schema": json.dumps(schema)},
            )
        )
    ).type
    return encoded(registry, "confluent_avro", rows, kind, schema=json.dumps(schema))


def test_avro_types_survive_encoding_and_decoding(registry):
    records = avro(registry, ALL, ROW, {**ROW, "price": None, "other": None, "line": None}, None)
    assert records[0] is not None
    assert records[0].startswith(header(1))
    first, second, third = decode(decoder(registry, "confluent_avro"), *records)
    assert first == (ROW, None)
    assert second == ({**ROW, "price": None, "other": None, "line": None}, None)
    assert third == (None, None)


def test_batch_with_two_schema_ids_is_decoded_to_the_columns_of_the_latest(registry):
    [old] = avro(registry, ORDER, {"id": 1, "item": "bolt"})
    [new] = avro(registry, WITH_PLACE, {"id": 2, "item": None, "place": "here"})
    running = decoder(registry, "confluent_avro")
    found = decode(running, old, new, old)
    assert [value["place"] for value, _ in found] == ["?", "here", "?"]
    registry.requests.clear()
    decode(running, old, new)
    assert registry.requests == [], "both schemas are cached"


def test_columns_are_those_of_a_version_or_of_a_given_schema(registry):
    [new] = (
        avro(registry, ORDER),
        avro(registry, WITH_PLACE, {"id": 2, "item": None, "place": "x"}),
    )[1]
    assert decode(decoder(registry, "confluent_avro", version="1"), new) == [
        ({"id": 2, "item": None}, None)
    ]
    only = json.dumps(
        {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    )
    assert decode(decoder(registry, "confluent_avro", schema=only), new) == [({"id": 2}, None)]


def test_records_that_cannot_be_decoded_are_null_with_a_reason_in_permissive_mode(registry):
    [good] = avro(registry, ORDER, {"id": 1, "item": "bolt"})
    assert good is not None
    running = decoder(registry, "confluent_avro", mode="permissive")
    unknown = header(77) + good[5:]
    bad = [b"", b"{json}", unknown, good[:-2], good + b"x", unknown]
    registry.requests.clear()
    found = decode(running, good, *bad)
    assert found[0] == ({"id": 1, "item": "bolt"}, None)
    assert [value for value, _ in found[1:]] == [None] * len(bad)
    for (_, reason), text in zip(
        found[1:],
        ["too few", "not 0", "no schema with the id 77", "schema id 1", "1 bytes follow", "77"],
        strict=True,
    ):
        assert text in str(reason)
    assert registry.requests == ["GET /schemas/ids/77"], (
        "one request for each unknown id of a batch"
    )


def test_failfast_names_the_place_of_the_record_and_the_remedy(registry):
    avro(registry, ORDER)
    place = [pa.array(["orders"]), pa.array([3]), pa.array([17])]
    with pytest.raises(UndecodableRecord) as caught:
        decoder(registry, "confluent_avro").decode(pa.array([header(9)]), place)
    text = "topic orders, partition 3, offset 17 cannot be decoded: the registry"
    assert str(caught.value).startswith(text)
    assert str(caught.value).endswith("set mode to permissive to read null instead")


def test_schema_that_is_registered_later_is_found_by_the_next_batch(registry):
    avro(registry, ORDER)
    running = decoder(registry, "confluent_avro", mode="permissive")
    unknown = header(2) + b"\x02\x00\x02x"
    assert decode(running, unknown)[0][0] is None
    registry.add("orders-value", WITH_PLACE)
    assert decode(running, unknown) == [({"id": 1, "item": None}, None)]


def test_schema_that_narrows_is_refused_on_both_sides(registry):
    [wide] = avro(registry, ORDER, {"id": 2**40, "item": None})
    with pytest.raises(
        RegistryError, match="schema: it is not compatible with the versions of the subject orders"
    ):
        avro(registry, NARROW)
    registry.force("orders-value", NARROW)
    [(value, reason)] = decode(decoder(registry, "confluent_avro", mode="permissive"), wide)
    assert value is None
    assert "cannot be read as the columns: Schema mismatch: long is not int" in str(reason)
    column = pa.struct([("id", pa.int64()), ("item", pa.string()), ("more", pa.int32())])
    with pytest.raises(ConfigError) as caught:
        encoded(registry, "confluent_avro", [], column)
    assert "cannot hold the columns: it has no field more; id is int, the column bigint" in str(
        caught.value
    )


def test_schema_of_another_type_is_refused(registry):
    [record] = avro(registry, ORDER, {"id": 1, "item": None})
    registry.add(
        "orders-json", {"type": "object", "properties": {"id": {"type": "integer"}}}, "JSON"
    )
    running = decoder(registry, "confluent_json", subject="orders-json", mode="permissive")
    assert "the id 1 is AVRO, not JSON" in str(decode(running, record)[0][1])
    with pytest.raises(
        ConfigError, match="the schema of orders-value is AVRO, not JSON; set the format to"
    ):
        decoder(registry, "confluent_json")


def test_row_that_does_not_fit_ends_the_task(registry):
    registry.add("orders-value", ORDER)
    column = pa.struct([("id", pa.int64()), ("item", pa.string())])
    with pytest.raises(UnencodableRow, match="a row does not fit the schema of orders-value"):
        encoded(registry, "confluent_avro", [{"id": None, "item": "x"}], column)


def test_times_are_cut_to_the_milliseconds_of_their_schema(registry):
    kind = {"type": "long", "logicalType": "timestamp-millis"}
    fields = [{"name": "at", "type": kind}, {"name": "end", "type": ["null", kind]}]
    registry.add("orders-value", {"type": "record", "name": "Times", "fields": fields})
    column = pa.struct([("at", pa.timestamp("us", "UTC")), ("end", pa.timestamp("us", "UTC"))])
    early = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)
    rows = [{"at": early, "end": None}, None, {"at": NOON, "end": early}]
    cut = early.replace(microsecond=999_000)
    records = encoded(registry, "confluent_avro", rows, column)
    assert [value for value, _ in decode(decoder(registry, "confluent_avro"), *records)] == [
        {"at": cut, "end": None},
        None,
        {"at": NOON, "end": cut},
    ]


def test_plain_values_survive_encoding_and_decoding(registry):
    registry.add("orders-value", '"long"')
    records = encoded(registry, "confluent_avro", [5, None], pa.int64())
    assert decode(decoder(registry, "confluent_avro"), *records) == [(5, None), (None, None)]
    given = {
        "schema.registry.url": registry.url,
        "topic": "numbers",
        "schema": '{"type": "integer"}',
    }
    work = writing(parse_encode("confluent_json", given))
    fitting.check(work, pa.int64())
    with pytest.raises(ConfigError, match="the value is bigint, the column string"):
        fitting.check(work, pa.string())


def test_avro_references_are_requested(registry):
    registry.add(
        "place", {"type": "record", "name": "com.Place", "fields": [{"name": "x", "type": "int"}]}
    )
    outer = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "at", "type": ["null", "com.Place"]}],
    }
    registry.add(
        "orders-value", outer, "AVRO", [{"name": "com.Place", "subject": "place", "version": 1}]
    )
    column = pa.struct([("at", pa.struct([("x", pa.int32())]))])
    rows = [{"at": {"x": 3}}, {"at": None}]
    records = encoded(registry, "confluent_avro", rows, column)
    assert decode(decoder(registry, "confluent_avro"), *records) == [(one, None) for one in rows]


def test_record_that_contains_itself_is_refused(registry):
    fields = [{"name": "next", "type": ["null", "Node"]}]
    registry.add("orders-value", {"type": "record", "name": "Node", "fields": fields})
    with pytest.raises(ConfigError, match="the record Node contains itself"):
        decoder(registry, "confluent_avro")


def files() -> tuple[str, str]:
    """Return two files of Protobuf in base64: one with messages, and one that it imports."""
    money = descriptor_pb2.FileDescriptorProto(name="money.proto", package="m", syntax="proto3")
    money.message_type.add(name="Money").field.add(name="cents", number=1, type=3, label=1)
    imports = ["google/protobuf/timestamp.proto", "google/protobuf/duration.proto", "money.proto"]
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="a", syntax="proto3", dependency=imports
    )
    file.message_type.add(name="Other").field.add(name="x", number=1, type=5, label=1)
    order = file.message_type.add(name="Order")
    kind = file.enum_type.add(name="Kind")
    kind.value.add(name="NONE", number=0)
    kind.value.add(name="ONE", number=1)
    entry = order.nested_type.add(name="CountsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=5, label=1)
    order.nested_type.add(name="Line").field.add(name="n", number=1, type=5, label=1)
    order.oneof_decl.add(name="_opt")
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="ts", number=2, type=11, label=1, type_name=".google.protobuf.Timestamp")
    order.field.add(name="took", number=3, type=11, label=1, type_name=".google.protobuf.Duration")
    order.field.add(name="tags", number=4, type=9, label=3)
    order.field.add(name="counts", number=5, type=11, label=3, type_name=".a.Order.CountsEntry")
    order.field.add(name="big", number=6, type=4, label=1)
    order.field.add(name="price", number=7, type=11, label=1, type_name=".m.Money")
    order.field.add(name="kind", number=8, type=14, label=1, type_name=".a.Kind")
    order.field.add(name="opt", number=9, type=5, label=1, proto3_optional=True, oneof_index=0)
    order.field.add(name="lines", number=10, type=11, label=3, type_name=".a.Order.Line")
    return tuple(base64.b64encode(one.SerializeToString()).decode() for one in (file, money))


def test_protobuf_messages_with_imports_survive_encoding_and_decoding(registry):
    file, money = files()
    registry.add("money", money, "PROTOBUF")
    reference = {"name": "money.proto", "subject": "money", "version": 1}
    registry.add("orders-value", file, "PROTOBUF", [reference])
    running = decoder(registry, "confluent_protobuf", record__name="a.Order", mode="permissive")
    row = {
        "id": 1,
        "ts": NOON - timedelta(microseconds=1),
        "took": timedelta(seconds=-1.5),
        "tags": ["x", "y"],
        "counts": [("a", 1)],
        "big": Decimal(2**64 - 1),
        "price": {"cents": 5},
        "kind": "ONE",
        "opt": 0,
        "lines": [{"n": 1}, {"n": 2}],
    }
    column = running.type.field("value").type
    rows = [row, {"id": 2}, None]
    records = encoded(registry, "confluent_protobuf", rows, column, record__name="a.Order")
    assert records[0] is not None
    assert records[0][:7] == header(2) + b"\x02\x02", "one index, which is 1"
    first, second, third = decode(running, *records)
    assert first == (row, None)
    absent = dict.fromkeys(("ts", "took", "price", "opt"))
    zeros = {"id": 2, "tags": [], "counts": [], "big": Decimal(0), "kind": "NONE", "lines": []}
    assert second == (zeros | absent, None)
    assert third == (None, None)
    other, nested, damaged, cut = decode(
        running,
        header(2) + b"\0\x08\x05",
        header(2) + b"\x04\x02\x02\x08\x05",
        header(2) + b"\x02\x02\x0a",
        header(2),
    )
    assert "it is a message a.Other, and the columns are those of a.Order" in str(other[1])
    assert "a.Order.Line" in str(nested[1])
    assert "its bytes are no message a.Order" in str(damaged[1])
    assert "ends within the indexes" in str(cut[1])


def test_optional_field_and_map_that_are_compiled_in_part_are_read(registry):
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", syntax="proto3")
    order = file.message_type.add(name="Order")
    order.field.add(name="opt", number=1, type=5, label=1, proto3_optional=True)
    order.field.add(name="by_item", number=2, label=3, type_name="map<string, int32>")
    text = base64.b64encode(file.SerializeToString()).decode()
    registry.add("orders-value", text, "PROTOBUF")
    running = decoder(registry, "confluent_protobuf")
    found = decode(running, header(1) + b"\0\x08\x00", header(1) + b"\0\x12\x05\x0a\x01a\x10\x07")
    assert [value for value, _ in found] == [
        {"opt": 0, "by_item": []},
        {"opt": None, "by_item": [("a", 7)]},
    ]


@pytest.mark.parametrize("indexes", [(0,), (1,), (0, 0), (3, 200, 1)])
def test_message_indexes_survive_encoding(indexes):
    data = header(1) + encoded_indexes(indexes) + b"rest"
    found, position = message_indexes(data)
    assert (found, data[position:]) == (indexes, b"rest")


def protobuf_with(kind: int, name: str = "id") -> str:
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", syntax="proto3")
    file.message_type.add(name="Order").field.add(name=name, number=1, type=kind, label=1)
    return base64.b64encode(file.SerializeToString()).decode()


def test_protobuf_field_that_narrows_is_refused_and_one_that_widens_is_read(registry):
    registry.add("orders-value", protobuf_with(5), "PROTOBUF")
    registry.add("orders-value", protobuf_with(3), "PROTOBUF")
    wide = decoder(registry, "confluent_protobuf", mode="permissive")
    assert decode(wide, header(1) + b"\0\x08\x05") == [({"id": 5}, None)]
    narrow = decoder(registry, "confluent_protobuf", version="1", mode="permissive")
    [(value, reason)] = decode(narrow, header(2) + b"\0\x08\x05")
    assert value is None
    assert "Order.id was of another type" in str(reason)


DOCUMENT = {
    "type": "object",
    "properties": {
        "id": {"type": "integer"},
        "n": {"type": ["null", "number"]},
        "lines": {"type": "array", "items": {"$ref": "#/definitions/Line"}},
        "any": {},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "text": {"oneOf": [{"type": "null"}, {"type": "string"}]},
        "at": {"$ref": "place.json"},
    },
    "definitions": {"Line": {"type": "object", "properties": {"ok": {"type": "boolean"}}}},
    "required": ["id"],
}
PLACE = {"type": "object", "properties": {"x": {"type": "integer"}}}


def document(registry: StandInRegistry) -> bytes:
    registry.add("place", PLACE, "JSON")
    reference = {"name": "place.json", "subject": "place", "version": 1}
    return header(registry.add("orders-value", DOCUMENT, "JSON", [reference]))


def test_json_documents_are_decoded_to_the_columns_of_their_schema(registry):
    head = document(registry)
    running = decoder(registry, "confluent_json", mode="permissive")
    whole = {
        "id": 1,
        "n": 2,
        "lines": [{"ok": True}, None],
        "any": [1],
        "counts": {"a": 1},
        "text": "s",
    }
    first, second, wrong, other, none = decode(
        running,
        head + json.dumps({**whole, "at": {"x": 3}, "more": 1}).encode(),
        head + b'{"id": 1.0}',
        head + b'{"id": "1"}',
        head + b"{",
        head + b"null",
    )
    assert first == ({**whole, "n": 2.0, "any": "[1]", "counts": [("a", 1)], "at": {"x": 3}}, None)
    assert second[0]["id"] == 1
    assert wrong == (None, 'id is not of the type integer: "1" (schema id 2)')
    assert other == (None, "its bytes are no JSON (schema id 2)")
    assert none == (None, None)


def test_json_documents_are_validated_on_request(registry):
    pytest.importorskip("jsonschema")
    head = document(registry)
    running = decoder(registry, "confluent_json", mode="permissive", validate="true")
    good, bad = decode(running, head + b'{"id": 1, "at": {"x": 1}}', head + b'{"n": 1}')
    assert good[1] is None
    assert bad[0] is None
    assert "it does not match its schema: 'id' is a required property" in str(bad[1])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"topic": "none"}, "has no subject none-value; register a schema for it, or set subject"),
        (
            {"topic": "orders", "version": "7"},
            "orders-value of the registry .* has no version 7; name",
        ),
        ({}, "subject is missing: name a subject of the registry, or the topic"),
        ({"topic": "t", "subject.name.strategy": "RecordNameStrategy"}, "needs record.name"),
        (
            {"topic": "t", "subject.name.strategy": "Other"},
            "subject.name.strategy must be one of Topic",
        ),
        ({"topics": "t"}, "unknown option topics: did you mean topic?"),
        ({"topic": "t", "version": "0"}, "version must be latest, or a number from 1, not 0"),
        ({"topic": "t", "mode": "drop"}, "mode must be one of failfast, permissive, not drop"),
        ({"topic": "t", "basic.auth.user.info": "ann"}, "must be USER:PASSWORD: it has no colon"),
        ({"topic": "t", "basic.auth.user.info": "a:b", "bearer.auth.token": "c"}, "both log in"),
        ({"topic": "t", "bearer.auth.token": "hid\nden"}, "^bearer.auth.token must have only"),
        (
            {"topic": "t", "schema.registry.url": "host:8081"},
            "schema.registry.url must be an address",
        ),
        ({"topic": "t", "schema": "{}", "version": "1"}, "schema and version exclude each other"),
        ({"topic": "t", "schema": "{"}, "an Avro schema must be JSON"),
        ({"topic": "t", "schema": '{"type": "recor"}'}, "it is no valid Avro schema"),
    ],
)
def test_wrong_options_are_refused_with_their_name(registry, options, text):
    registry.add("orders-value", ORDER)
    with pytest.raises(MinikafkaError, match=text):
        columns_of(
            reading(
                parse_decode("confluent_avro", {"schema.registry.url": registry.url, **options})
            )
        )


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [
        ("TopicNameStrategy", "t-key"),
        ("io.confluent.kafka.serializers.subject.RecordNameStrategy", "com.Order"),
        ("topicrecordnamestrategy", "t-com.Order"),
    ],
)
def test_strategy_determines_the_subject(strategy, subject):
    given = {"topic": "t", "record.name": "com.Order", "subject.name.strategy": strategy}
    found = parse_decode("confluent_avro", {"schema.registry.url": "http://h", **given}, "key")
    assert found.subject == subject


def test_login_is_sent_and_never_shown(registry):
    registry.add("orders-value", ORDER)
    login = "Basic " + base64.b64encode(b"ann:s3cret").decode()
    registry.logins = {login, "Bearer t0ken"}
    at = {"schema.registry.url": registry.url, "topic": "orders"}
    for given in (
        {"basic.auth.user.info": "ann:s3cret"},
        {"bearer.auth.token": "t0ken"},
        {"schema.registry.url": registry.url.replace("//", "//ann:s3cret@")},
    ):
        options = parse_decode("confluent_avro", at | given)
        assert reading(options).columns.id == 1
        assert "s3cret" not in repr(options) + str(options)
        assert "t0ken" not in repr(options)
    with pytest.raises(
        RegistryError, match=r"needs a login \(HTTP 401\); set basic.auth.user.info"
    ):
        reading(parse_decode("confluent_avro", at))
    with pytest.raises(
        RegistryError, match=r"check bearer.auth.token: it may be wrong or expired"
    ) as caught:
        reading(parse_decode("confluent_avro", at | {"bearer.auth.token": "old-t0ken"}))
    assert "t0ken" not in str(caught.value)
    registry.forbidden = {"Bearer t0ken"}
    with pytest.raises(RegistryError, match=r"no right to this schema \(HTTP 403\)"):
        reading(parse_decode("confluent_avro", at | {"bearer.auth.token": "t0ken"}))


def test_registry_that_fails_for_a_moment_is_asked_again(registry, monkeypatch):
    registry.add("orders-value", ORDER)
    registry.failures = 1
    at = {"schema.registry.url": registry.url, "topic": "orders"}
    with pytest.raises(
        RegistryError, match=r"HTTP 500 \(Error in the backend datastore\); check the address"
    ):
        reading(parse_decode("confluent_avro", at))
    registry.failures = 2
    monkeypatch.setattr(client, "RETRY_SECONDS", 20.0)
    assert reading(parse_decode("confluent_avro", at)).columns.id == 1


def test_registry_that_cannot_compile_protobuf_is_named(registry):
    registry.add("orders-value", protobuf_with(5), "PROTOBUF")
    registry.failing = {"/schemas/ids/1?format=serialized": 500}
    with pytest.raises(
        RegistryError, match=r"cannot compile the Protobuf schema with the id 1: HTTP 500"
    ):
        decoder(registry, "confluent_protobuf")


def test_unreachable_registry_is_named_and_the_next_server_is_asked(registry):
    registry.add("orders-value", ORDER)
    at = {"schema.registry.url": "http://127.0.0.1:1", "topic": "orders"}
    with pytest.raises(
        RegistryError, match=r"http://127.0.0.1:1: no answer \(Connection refused\)"
    ):
        reading(parse_decode("confluent_avro", at))
    both = at | {"schema.registry.url": f"http://127.0.0.1:1, {registry.url}"}
    assert reading(parse_decode("confluent_avro", both)).columns.id == 1
    wrong = at | {"schema.registry.url": f"{registry.url}/elsewhere"}
    with pytest.raises(RegistryError, match="check that this is the address of a schema registry"):
        reading(parse_decode("confluent_avro", wrong))


def test_schema_is_looked_up_where_registering_is_off(registry):
    column = pa.struct([("id", pa.int64()), ("item", pa.string())])
    off = {"schema": json.dumps(ORDER), "auto__register__schemas": "false"}
    with pytest.raises(RegistryError, match="has no subject orders-value"):
        encoded(registry, "confluent_avro", [], column, **off)
    registry.add("orders-value", WITH_PLACE)
    with pytest.raises(
        RegistryError, match=r"orders-value of the registry .* does not have it; register it"
    ):
        encoded(registry, "confluent_avro", [], column, **off)
    registry.add("orders-value", ORDER)
    assert encoded(registry, "confluent_avro", [{"id": 1}], column, **off) == [
        header(2) + b"\x02\x00"
    ]
