"""Documents and messages that other programs write, decoded and encoded without a registry."""

from __future__ import annotations

import base64
import json
import re
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("google.protobuf")

from google.protobuf import descriptor_pb2

from minikafka.base.errors import ConfigError
from minikafka.spark.registry import json_schema, records
from minikafka.spark.registry.client import Schema
from minikafka.spark.registry.framing import encoded_indexes, header
from minikafka.spark.registry.options import parse_decode, parse_encode

AT = {"schema.registry.url": "http://none", "topic": "t"}


class OneSchema:
    """A registry in which every id is that of one schema."""

    def __init__(self, kind: str, text: str, *references: tuple[str, str]) -> None:
        self.schema = Schema(kind, text, references, 1)
        self.format = f"confluent_{kind.lower()}"

    def of_id(self, _: int) -> Schema:
        return self.schema

    def decoder(self, **options: str) -> records.Decoder:
        given = AT | {"mode": "permissive"} | options
        work = records.RecordReading(parse_decode(self.format, given), self.schema)
        return records.Decoder(work, self)

    def encoded(self, rows: pa.Array, message: str) -> Any:
        options = parse_encode(self.format, AT | {"record.name": message})
        return records.encoder_of(records.RecordWriting(options, self.schema))(rows).to_pylist()


def document(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def decoded(schema: Any, *documents: bytes, **options: str) -> list[Any]:
    running = OneSchema("JSON", json.dumps(schema)).decoder(**options)
    data = pa.array([header(1) + one for one in documents], pa.binary())
    found: list[Any] = running.decode(data, ()).to_pylist()
    return found


def test_property_that_may_be_null_has_the_type_of_the_other_choice():
    """Java's generators of schemas give the choice of null a title."""
    null = {"type": "null", "title": "Not included"}
    schema = document(a={"oneOf": [null, {"type": "integer"}]})
    assert json_schema.shape(OneSchema("JSON", json.dumps(schema)).schema).type == pa.struct(
        [("a", pa.int64())]
    )


@pytest.mark.parametrize(
    ("reference", "place"),
    [
        ("http://example.com/order.json#/definitions/Line", "Line"),
        ("#/definitions/A%20line", "A line"),
    ],
)
def test_reference_to_the_schema_itself_is_followed(reference, place):
    schema = document(a={"$ref": reference}) | {
        "$id": "http://example.com/order.json",
        "definitions": {place: {"type": "integer"}},
    }
    assert decoded(schema, b'{"a": 5}') == [{"value": {"a": 5}, "reason": None}]


def test_text_with_half_a_character_is_malformed():
    bad, good = decoded(document(a={"type": "string"}), rb'{"a": "\ud800"}', b'{"a": "x"}')
    assert bad["value"] is None
    assert "a value does not fit into its column" in bad["reason"]
    assert good == {"value": {"a": "x"}, "reason": None}


ANY = {"type": ["object", "null"]}
WITH_OBJECTS = document(
    a=ANY,
    n={"type": "number"},
    many={"type": "array", "items": ANY},
    named={"type": "object", "additionalProperties": {"type": "object", "properties": {}}},
    inner=document(b=ANY),
)


def encoded_json(schema: Any, *texts: str | None) -> Any:
    """Return records of rows, which Spark's to_json has made texts."""
    registry = OneSchema("JSON", json.dumps(schema))
    work = records.RecordWriting(parse_encode(registry.format, AT), registry.schema)
    return records.encoder_of(work)(pa.array(texts, pa.string())).to_pylist()


def test_object_without_properties_is_decoded_to_its_text():
    whole = {"a": {"x": [1.5, None]}, "many": [{}, None], "named": {"k": {}}, "inner": {"b": {}}}
    [found] = decoded(WITH_OBJECTS, json.dumps(whole).encode())
    texts = {"many": ["{}", None], "named": [("k", "{}")], "inner": {"b": "{}"}}
    assert found == {"value": {"a": '{"x": [1.5, null]}', "n": None, **texts}, "reason": None}
    assert decoded(ANY, b'{"x": 1}') == [{"value": '{"x": 1}', "reason": None}]


@pytest.mark.parametrize("value", ['"{}"', "[]", "1", "true"])
def test_value_that_is_no_object_is_malformed_where_the_schema_wants_one(value):
    [found] = decoded(WITH_OBJECTS, f'{{"inner": {{"b": {value}}}}}'.encode())
    assert found["reason"] == f"inner.b is not of the type object: {value} (schema id 1)"


def test_text_of_an_object_is_encoded_as_the_object_with_the_digits_of_its_numbers():
    digits = "12345678901234567890.123456789012345678901"
    row = {"a": f'{{"x": {digits}, "y": "ü\\n"}}', "many": [" {} ", None], "inner": {"b": "{}"}}
    text = json.dumps({**row, "named": {"k": '{"z": 1e400}', "none": None}})
    found, none = encoded_json(WITH_OBJECTS, f'{text[:-1]}, "n": {digits}}}', None)
    assert (
        found
        == header(1)
        + (
            f'{{"a":{{"x":{digits},"y":"ü\\n"}},"many":[{{}},null],"inner":{{"b":{{}}}},'
            f'"named":{{"k":{{"z":1e400}},"none":null}},"n":{digits}}}'
        ).encode()
    )
    assert none is None
    assert encoded_json(ANY, r'"{\"x\": 1}"') == [header(1) + b'{"x":1}']


@pytest.mark.parametrize("text", ["", "[1]", "null", "5", "{", '{"x": 1} y', '{"x": NaN}', '"{}"'])
def test_text_that_is_no_object_ends_the_query(text):
    wanted = f"inner.b is not the text of a JSON object: {text!r}; correct the row in the query"
    with pytest.raises(records.UnencodableRow, match=re.escape(wanted)):
        encoded_json(WITH_OBJECTS, json.dumps({"inner": {"b": text}}))


@pytest.mark.parametrize("kind", ["objekt", {"type": "string"}])
def test_schema_with_an_unknown_type_is_refused_on_validation(kind):
    pytest.importorskip("jsonschema")
    [found] = decoded(document(a={"type": kind}), b'{"a": 5}', validate="true")
    assert "schema: it is no valid JSON Schema: " in found["reason"]


def test_schema_whose_type_is_a_number_is_refused():
    with pytest.raises(ConfigError, match="schema: it is no JSON Schema: "):
        decoded(document(a={"type": 5}), b"{}")


NUMBER, ENUM, TEXT, MESSAGE, UINT64 = 5, 14, 9, 11, 4


def field(message: Any, name: str, kind: int, type_name: str = "", **more: Any) -> None:
    number = len(message.field) + 1
    found = message.field.add(name=name, number=number, type=kind, label=1, **more)
    if type_name:
        found.type_name = type_name


def messages() -> OneSchema:
    """Return a file with the messages First and Order, which imports the message Place."""
    place = descriptor_pb2.FileDescriptorProto(name="place.proto", package="b", syntax="proto3")
    field(place.message_type.add(name="Place"), "street", TEXT)
    file = descriptor_pb2.FileDescriptorProto(
        name="order.proto", package="a", syntax="proto3", dependency=["place.proto"]
    )
    field(file.message_type.add(name="First"), "place", MESSAGE, ".b.Place")
    order = file.message_type.add(name="Order")
    file.enum_type.add(name="Kind").value.add(name="NONE", number=0)
    field(order, "kind", ENUM, ".a.Kind")
    order.oneof_decl.add(name="choice")
    field(order, "text", TEXT, oneof_index=0)
    field(order, "number", NUMBER, oneof_index=0)
    entry = order.nested_type.add(name="NamesEntry")
    entry.options.map_entry = True
    field(entry, "key", UINT64)
    field(entry, "value", TEXT)
    field(order, "names", MESSAGE, ".a.Order.NamesEntry")
    order.field[-1].label = 3
    main, other = (base64.b64encode(one.SerializeToString()).decode() for one in (file, place))
    return OneSchema("PROTOBUF", main, ("place.proto", other))


def test_number_of_an_unknown_enum_value_and_key_of_64_bits_are_encoded_as_they_were():
    given = messages()
    data = b"\x08\x07" + b"\x22\x0e\x08" + b"\xff" * 9 + b"\x01\x12\x01x"
    records_before = [header(1) + encoded_indexes((1,)) + data]
    found = given.decoder(**{"record.name": "a.Order"}).decode(pa.array(records_before), ())
    rows = found.field("value")
    assert rows.field("kind").to_pylist() == ["7"]
    assert given.encoded(rows, "a.Order") == records_before


def test_row_with_two_fields_of_a_oneof_is_refused():
    rows = pa.array([{"text": "a", "number": 5}])
    with pytest.raises(
        records.UnencodableRow, match="number and text are set, and a message holds"
    ):
        messages().encoded(rows, "a.Order")


def test_message_of_an_imported_file_is_refused():
    with pytest.raises(
        ConfigError, match=r"has no message b\.Place; its messages are a\.First, a\.Order"
    ):
        messages().decoder(**{"record.name": "b.Place"})
