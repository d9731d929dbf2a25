"""Records of minikafka.spark.registry with a real schema registry, whose address is in the environment.

Start Karapace or Apicurio, and set MINIKAFKA_SCHEMA_REGISTRY to its URL, for Apicurio with /apis/ccompat/v7. Each run
uses subjects of its own.
"""

from __future__ import annotations

import json
import os
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

import pyarrow as pa

from minikafka.base.errors import MinikafkaError
from minikafka.spark.registry import client, fitting
from minikafka.spark.registry.client import RegistryError
from minikafka.spark.registry.framing import header
from minikafka.spark.registry.options import parse_decode, parse_encode
from minikafka.spark.registry.records import columns_of, decoder_of, encoder_of, reading, writing

URL = os.environ.get("MINIKAFKA_SCHEMA_REGISTRY", "")
pytestmark = pytest.mark.skipif(not URL, reason="MINIKAFKA_SCHEMA_REGISTRY names no registry")
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"], "default": None},
    ],
}
PROTO = """syntax = "proto3";
package a;
import "google/protobuf/timestamp.proto";
message Other { int32 x = 1; }
message Order {
  int64 id = 1;
  google.protobuf.Timestamp ts = 2;
  map<string, int32> counts = 3;
  message Line { int32 n = 1; }
  repeated Line lines = 4;
  optional int32 opt = 5;
  enum Kind { NONE = 0; ONE = 1; }
  Kind kind = 6;
  oneof what { string text = 7; int64 number = 8; }
}
"""


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Return the options of a topic that no other test uses."""
    monkeypatch.setattr(client, "RETRY_SECONDS", 1.0)
    return {"schema.registry.url": URL, "topic": f"t{uuid4().hex}"}


def send(method: str, path: str, body: Any) -> int:
    """Send a request that minikafka does not make, and return the status."""
    parts = urlsplit(URL)
    connection = HTTPConnection(parts.hostname or "", parts.port, timeout=60)
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    connection.request(method, parts.path + path, json.dumps(body), headers)
    try:
        response = connection.getresponse()
        response.read()
        return response.status
    finally:
        connection.close()


def encode(kind: str, options: dict[str, str], schema: Any, rows: list[Any]) -> pa.Array:
    text = (
        {}
        if schema is None
        else {"schema": schema if isinstance(schema, str) else json.dumps(schema)}
    )
    work = writing(parse_encode(kind, options | text))
    column = columns_of(reading(parse_decode(kind, options))).type
    fitting.check(work, column)
    return encoder_of(work)(pa.array(rows, column))


def decode(kind: str, options: dict[str, str], records: pa.Array) -> list[tuple[Any, str | None]]:
    running = decoder_of(reading(parse_decode(kind, options | {"mode": "permissive"})))
    found = running.decode(records, ())
    return [(one["value"], one["reason"]) for one in found.to_pylist()]


def test_avro_of_two_versions_and_an_unknown_id(options):
    old = encode("confluent_avro", options, ORDER, [{"id": 1, "item": "x"}, None])
    more = {**ORDER, "fields": [*ORDER["fields"], {"name": "p", "type": "string", "default": "?"}]}
    new = encode("confluent_avro", options, more, [{"id": 2, "item": None, "p": "here"}])
    unknown = pa.array([header(10**6) + b"x"])
    found = decode("confluent_avro", options, pa.concat_arrays([old, new, unknown]))
    assert [value for value, _ in found[:3]] == [
        {"id": 1, "item": "x", "p": "?"},
        None,
        {"id": 2, "item": None, "p": "here"},
    ]
    assert "has no schema with the id 1000000" in str(found[3][1])


def test_schema_that_narrows_is_refused(options):
    encode("confluent_avro", options, ORDER, [])
    subject = f"{options['topic']}-value"
    assert send("PUT", f"/config/{subject}", {"compatibility": "BACKWARD"}) == 200
    narrow = {**ORDER, "fields": [{"name": "id", "type": "int"}]}
    with pytest.raises(RegistryError, match=f"schema: it is not compatible .* subject {subject}"):
        encode("confluent_avro", options, narrow, [])


def test_avro_references_are_followed(options):
    inner = {
        "type": "record",
        "name": f"com.I{options['topic']}",
        "fields": [{"name": "x", "type": "int"}],
    }
    assert (
        send("POST", f"/subjects/{options['topic']}-in/versions", {"schema": json.dumps(inner)})
        == 200
    )
    outer = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "i", "type": ["null", inner["name"]]}],
    }
    reference = {"name": inner["name"], "subject": f"{options['topic']}-in", "version": 1}
    body = {"schema": json.dumps(outer), "references": [reference]}
    if (status := send("POST", f"/subjects/{options['topic']}-value/versions", body)) == 422:
        pytest.skip(f"{URL} takes no references of Avro")
    assert status == 200
    rows = [{"i": {"x": 4}}, {"i": None}]
    records = encode("confluent_avro", options, None, rows)
    assert decode("confluent_avro", options, records) == [(row, None) for row in rows]


def test_errors_name_the_subject_the_version_and_the_schema(options):
    with pytest.raises(RegistryError, match="has no subject t"):
        reading(parse_decode("confluent_avro", options))
    encode("confluent_avro", options, ORDER, [])
    with pytest.raises(RegistryError, match="has no version 99"):
        reading(parse_decode("confluent_avro", options | {"version": "99"}))
    with pytest.raises(RegistryError, match=r"schema: the registry .* refuses it"):
        encode("confluent_avro", options, '{"type": "recor"}', [])
    off = options | {"auto.register.schemas": "false", "schema": json.dumps({**ORDER, "name": "Z"})}
    with pytest.raises(RegistryError, match="does not have it; register it"):
        writing(parse_encode("confluent_avro", off))


def test_json_documents_are_validated(options):
    pytest.importorskip("jsonschema")
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
        "required": ["id"],
    }
    given = options | {"schema": json.dumps(schema)}
    head = header(int(writing(parse_encode("confluent_json", given)).schema.id or 0))
    records = pa.array([head + b'{"id": 1, "item": "x"}', head + b'{"item": "x"}'])
    good, bad = decode("confluent_json", options | {"validate": "true"}, records)
    assert good == ({"id": 1, "item": "x"}, None)
    assert "'id' is a required property" in str(bad[1])


def test_protobuf_messages_are_compiled_by_the_registry(options):
    row = {"id": 1, "ts": None, "counts": [("a", 1)], "lines": [{"n": 1}], "opt": 0, "kind": "ONE"}
    row |= {"text": "q", "number": None}
    given = options | {"record.name": "a.Order"}
    try:
        records = encode("confluent_protobuf", given, PROTO, [row])
    except MinikafkaError as error:
        if "compile" not in str(error):
            raise
        pytest.skip(f"{URL} does not answer format=serialized")
    assert decode("confluent_protobuf", given, records) == [(row, None)]
