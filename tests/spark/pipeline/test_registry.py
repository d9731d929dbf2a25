"""Records with a schema registry: pipelines and programs on a real cluster, with a registry on a port."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")

from pyspark.errors import PythonException, StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from support.spark.schema_registry import StandInRegistry, running_registry

from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark.pipelines.run.definition import Overrides, parse
from minikafka.spark.pipelines.run.pipeline import run
from minikafka.spark.pipelines.session.failures import explain
from minikafka.spark.pipelines.session.report import Report, Silent, Summary
from minikafka.spark.registry import client as registry_client
from minikafka.spark.registry import decoded, encoded, functions
from minikafka.spark.registry.framing import header

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"], "default": None},
    ],
}
NARROW = {**ORDER, "fields": [{"name": "id", "type": "int"}, ORDER["fields"][1]]}
BOLT = header(1) + b"\x02\x02\x08bolt"
"""The order 1 of a bolt, as it is written with the schema 1."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInRegistry]:
    monkeypatch.setattr(registry_client, "RETRY_SECONDS", 0.0)
    with running_registry() as running:
        yield running


@pytest.fixture
def pipeline(spark, cluster, registry, tmp_path):
    """Return a function that runs a pipeline from one topic to another, or to Parquet."""

    def start(source: str, sink: str, decode: str = "", checkpoint: str = "checkpoint") -> Summary:
        text = f"""
            [pipeline]
            name = "orders"
            checkpoint = "{tmp_path}/{checkpoint}"
            [source.orders]
            topic = "{source}"
            decode = {{ format = "confluent_avro", "schema.registry.url" = "{registry.url}" {decode} }}
            {sink}
        """
        definition = parse(text, "f.toml", Overrides(lambda: cluster.bootstrap))
        try:
            return run(spark, definition, Report(Silent()))
        except Exception as error:
            raise explain(error) from error

    return start


async def test_pipeline_decodes_and_encodes_and_continues_after_a_schema_that_narrows(
    client, contents, pipeline, registry, spark, tmp_path
):
    await client.create_topics(NewTopic("reg-orders", 1, 3), NewTopic("reg-copies", 1, 3))
    registry.add("reg-orders-value", ORDER)
    records = [
        Record(value=BOLT),
        Record(value=None),
        Record(key=b"k", value=header(1) + b"\x04\x00"),
    ]
    await client.produce("reg-orders", records, partition=0)
    schema = json.dumps(ORDER)
    sink = f"""
        [[step]]
        name = "known"
        sql = "select id, upper(item) item from orders where id is not null"
        [sink]
        kind = "topic"
        topic = "reg-copies"
        [sink.encode]
        format = "confluent_avro"
        "schema.registry.url" = "{registry.url}"
        schema = '{schema}'
        key = "id"
    """
    summary = pipeline("reg-orders", sink)
    assert (summary.facts["records_read"], summary.facts["rows_written"]) == (3, 2)
    found = [(one.key, one.value) for one in await contents("reg-copies")]
    assert found == [(b"1", header(1) + b"\x02\x02\x08BOLT"), (b"2", header(1) + b"\x04\x00")]

    wide = header(1) + b"\x80\x80\x80\x80\x80\x40\x00"
    await client.produce("reg-orders", [Record(value=BOLT), Record(value=wide)], partition=0)
    registry.force("reg-orders-value", NARROW)
    with pytest.raises(
        Exception, match="topic reg-orders, partition 0, offset 3 cannot be decoded"
    ) as caught:
        pipeline("reg-orders", sink)
    assert "Schema mismatch: long is not int" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(await contents("reg-copies")) == 2, "nothing of the micro-batch is visible"
    assert pipeline("reg-orders", sink, ', version = "1"').facts["rows_written"] == 2
    assert len(await contents("reg-copies")) == 4


async def test_malformed_records_go_to_dead_letters_or_end_the_query(
    client, contents, pipeline, registry, spark, tmp_path
):
    names = ("reg-mixed", "reg-dead", "reg-good")
    await client.create_topics(*(NewTopic(name, 1, 3) for name in names))
    registry.add("reg-mixed-value", ORDER)
    records = [Record(value=BOLT), Record(value=b"{}"), Record(value=header(9) + b"\x02\x00")]
    await client.produce("reg-mixed", records, partition=0)
    sink = f"""
        [sink]
        kind = "parquet"
        path = "{tmp_path}/orders"
    """
    with pytest.raises(Exception, match=r"offset 1 cannot be decoded: .* set mode to permissive"):
        pipeline("reg-mixed", sink)
    assert not list((tmp_path / "orders").glob("*.parquet"))
    registry.logins = {"Basic " + base64.b64encode(b"ann:new").decode()}
    old = ', "basic.auth.user.info" = "ann:old"'
    with pytest.raises(
        Exception, match=r"decode: .*check basic.auth.user.info: it may be wrong"
    ) as caught:
        pipeline("reg-mixed", sink, old)
    assert "ann:old" not in str(caught.value)
    letters = 'dead_letter = "reg-dead"\n' + sink
    summary = pipeline("reg-mixed", letters, old.replace("old", "new"))
    assert (summary.facts["malformed"], summary.facts["dead_letters"]) == (2, 2)
    rows = spark.read.parquet(f"{tmp_path}/orders").orderBy("_offset").collect()
    assert [(row["id"], row["_malformed"] is None) for row in rows] == [(1, True)]
    dead = await contents("reg-dead")
    assert [one.value for one in dead] == [b"{}", header(9) + b"\x02\x00"]
    reasons = [dict(one.headers)["minikafka.errors.exception.message"] for one in dead]
    assert b"without a schema registry" in reasons[0]
    assert b"no schema with the id 9" in reasons[1]


async def test_pipeline_decodes_and_encodes_keys(client, contents, pipeline, registry, tmp_path):
    names = ("reg-keys", "reg-keyed", "reg-numbered", "reg-keys-dead")
    await client.create_topics(*(NewTopic(name, 1, 3) for name in names))
    of_value, of_key = registry.add("reg-keys-value", ORDER), registry.add("reg-keys-key", '"long"')
    place = {"type": "record", "name": "Place", "fields": ORDER["fields"][:1]}
    of_place, of_number = (
        registry.add("reg-keyed-key", place),
        registry.add("reg-numbered-key", {"type": "integer"}, "JSON"),
    )
    assert (of_value, of_key, of_place, of_number) == (1, 2, 3, 4)
    records = [
        Record(key=header(2) + b"\x0e", value=BOLT),
        Record(value=BOLT),
        Record(key=b"k", value=BOLT),
    ]
    await client.produce("reg-keys", records, partition=0)
    at = f'"schema.registry.url" = "{registry.url}"'
    sink = f"""
        decode_key = {{ format = "confluent_avro", {at} %s }}
        [[step]]
        name = "known"
        sql = "select id, _key from orders"
        [sink]
        kind = "topic"
    """
    keyed = f"""
        topic = "reg-keyed"
        encode = {{ format = "json" }}
        encode_key = {{ format = "confluent_avro", columns = ["id"], {at} }}
    """
    numbered = f"""
        topic = "reg-numbered"
        encode = {{ format = "json" }}
        encode_key = {{ format = "confluent_json", column = "_key", {at} }}
    """
    with pytest.raises(
        Exception, match="the key of topic reg-keys, partition 0, offset 2 cannot be decoded"
    ):
        pipeline("reg-keys", sink % "" + keyed)
    assert await contents("reg-keyed") == []
    summary = pipeline("reg-keys", 'dead_letter = "reg-keys-dead"' + sink % "" + keyed)
    assert (summary.facts["malformed"], summary.facts["dead_letters"]) == (1, 1)
    found = [(one.key, one.value) for one in await contents("reg-keyed")]
    head = header(3) + b"\x02"
    assert found == [(head, b'{"id":1,"_key":7}'), (head, b'{"id":1}')]
    [dead] = await contents("reg-keys-dead")
    assert (dead.key, dead.value) == (b"k", BOLT)
    reason = dict(dead.headers)["minikafka.errors.exception.message"]
    assert reason == b"key: its first byte is 107, not 0: it was written without a schema registry"
    permissive = sink % ', mode = "permissive"'
    assert pipeline("reg-keys", permissive + numbered, checkpoint="n").facts["malformed"] == 1
    found = [(one.key, one.value) for one in await contents("reg-numbered")]
    assert found == [(header(4) + b"7", b'{"id":1}'), *[(None, b'{"id":1}')] * 2]


@pytest.fixture
def no_retries_in_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Spark's workers not wait for a registry that fails."""
    real = functions._Decoding

    def impatient(work):
        task = real(work)

        def run(*columns):
            from minikafka.spark.registry import client

            client.RETRY_SECONDS = 0.0
            return task(*columns)

        return run

    monkeypatch.setattr(functions, "_Decoding", impatient)


async def test_stream_ends_when_the_registry_fails_and_continues_after_a_restart(
    client, cluster, contents, no_retries_in_workers, spark, tmp_path
):
    await client.create_topics(NewTopic("reg-live", 1, 3), NewTopic("reg-lived", 1, 3))
    registry = StandInRegistry()
    registry.add("reg-live-value", ORDER)

    async def produce(*values: bytes) -> None:
        await client.produce("reg-live", [Record(value=one) for one in values], partition=0)

    def started():
        servers = {"kafka.bootstrap.servers": cluster.bootstrap}
        reader = spark.readStream.format("minikafka").options(**servers, subscribe="reg-live")
        options = {"schema.registry.url": registry.url, "topic": "reg-live", "version": "1"}
        frame = reader.option("startingOffsets", "earliest").load()
        orders = decoded(
            frame, "confluent_avro", options | {"basic.auth.user.info": "ann:of-yesterday"}
        )
        rows = orders.select(f.col("value.id").cast("string").cast("binary").alias("value"))
        writer = rows.writeStream.format("minikafka").options(**servers, topic="reg-lived")
        writer = writer.option("exactlyOnce", "true")
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def failure_of(query) -> str:
        with pytest.raises(StreamingQueryException) as caught:
            query.processAllAvailable()
        return str(explain(caught.value))

    async def written() -> list[bytes | None]:
        return sorted(one.value for one in await contents("reg-lived"))

    with running_registry(registry):
        query = started()
        await produce(BOLT, BOLT)
        query.processAllAvailable()
    await produce(BOLT, BOLT)
    query.processAllAvailable()  # the workers know the schema, and need no registry
    assert await written() == [b"1"] * 4

    more = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 0}]}
    assert registry.add("reg-live-value", more) == 2
    await produce(BOLT, header(2) + b"\x04\x00\x00")
    where, again = (
        f"schema.registry.url {registry.url}",
        "check the address, and that the registry runs",
    )
    assert failure_of(query) == f"{where}: no answer (Connection refused); {again}"
    refused = "the registry refuses the login (HTTP 401); check basic.auth.user.info: it may be wrong or expired"
    for status, text in ((500, f"HTTP 500 (Internal Server Error); {again}"), (401, refused)):
        registry.failing = {"/schemas/ids/2": status}
        with running_registry(registry):
            assert failure_of(started()) == f"{where}: {text}"
        assert await written() == [b"1"] * 4, "nothing of the micro-batch is visible"
    registry.failing = {}
    with running_registry(registry):
        query = started()
        query.processAllAvailable()
        query.stop()
    assert await written() == [*[b"1"] * 5, b"2"]


def test_text_of_an_object_is_encoded_as_an_object_or_refused(spark, registry):
    options = {"schema.registry.url": registry.url, "topic": "objects"}
    schema = {"type": "object", "properties": {"more": {"type": "object"}}}

    def records(*texts: str | None) -> DataFrame:
        rows = spark.createDataFrame([((text,),) for text in texts], "value struct<more: string>")
        return encoded(rows, "confluent_json", options | {"schema": json.dumps(schema)})

    good = records('{"a": [1.10]}', None)
    assert [row["value"][5:] for row in good.collect()] == [b'{"more":{"a":[1.10]}}', b"{}"]
    found = decoded(good, "confluent_json", options).select("value.more").collect()
    assert [row["more"] for row in found] == ['{"a": [1.1]}', None]
    with pytest.raises(PythonException) as caught:
        records("[1]").collect()
    assert str(explain(caught.value)) == (
        "schema: a row does not fit the schema of objects-value: more is not the text of a JSON object: '[1]'; correct"
        " the row in the query, or register a schema that allows it"
    )


def test_program_encodes_and_decodes_each_format(spark, registry):
    rows = spark.range(3).select(
        f.struct("id", f.concat(f.lit("i"), "id").alias("item")).alias("value")
    )
    document = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
    }
    for kind, schema in (("confluent_avro", ORDER), ("confluent_json", document)):
        options = {"schema.registry.url": registry.url, "topic": kind}
        written = encoded(rows, kind, options | {"schema": json.dumps(schema)})
        found = decoded(written, kind, options).select("value.*").orderBy("id").collect()
        assert [tuple(row) for row in found] == [(0, "i0"), (1, "i1"), (2, "i2")]
    bad = spark.createDataFrame([(b"x",), (None,)], "value binary")
    options = {"schema.registry.url": registry.url, "topic": "confluent_avro", "mode": "permissive"}
    found = decoded(bad, "confluent_avro", options).collect()
    assert [row["value"] for row in found] == [None, None]
    assert [row["_malformed"] is None for row in found] == [False, True]
