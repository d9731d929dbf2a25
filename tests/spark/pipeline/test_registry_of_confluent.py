"""Protobuf records of confluent-kafka's serializer in Spark, and records of Spark for its deserializer.

With MINIKAFKA_SCHEMA_REGISTRY in the environment, the registry is the one at this URL instead of the stand-in.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest

pytest.importorskip(
    "confluent_kafka.schema_registry.protobuf",
    reason="confluent-kafka[protobuf,schemaregistry] is not installed",
    exc_type=ImportError,
)

from confluent_kafka.schema_registry import SchemaRegistryClient, protobuf
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
    timestamp_pb2,
)
from support.spark.schema_registry import running_registry

from minikafka.client import NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark.pipelines.run.definition import Overrides, parse
from minikafka.spark.pipelines.run.pipeline import run
from minikafka.spark.pipelines.session.report import Report, Silent
from minikafka.spark.registry import decoded, encoded
from minikafka.spark.registry.client import RegistryError

STRING, INT32, INT64, MESSAGE = 9, 5, 3, 11
ONE, MANY = 1, 3


@pytest.fixture
def url() -> Iterator[str]:
    if given := os.environ.get("MINIKAFKA_SCHEMA_REGISTRY"):
        yield given
        return
    with running_registry() as running:
        yield running.url


def message_classes(package: str) -> Callable[[str], Any]:
    """Return a function that returns the class of a message, as `protoc` makes it.

    Order is the second message of its file, Line is within it, and its file imports two others.
    """
    money = descriptor_pb2.FileDescriptorProto(
        name=f"{package}/money.proto", package=package, syntax="proto3"
    )
    price = money.message_type.add(name="Money")
    price.field.add(name="units", number=1, type=INT64, label=ONE)
    price.field.add(name="currency", number=2, type=STRING, label=ONE)
    file = descriptor_pb2.FileDescriptorProto(
        name=f"{package}/order.proto", package=package, syntax="proto3"
    )
    file.dependency.extend([money.name, "google/protobuf/timestamp.proto"])
    file.message_type.add(name="Other").field.add(name="x", number=1, type=INT32, label=ONE)
    order = file.message_type.add(name="Order")
    line = order.nested_type.add(name="Line")
    line.field.add(name="item", number=1, type=STRING, label=ONE)
    line.field.add(name="price", number=2, type=MESSAGE, label=ONE, type_name=f".{package}.Money")
    order.field.add(name="id", number=1, type=INT64, label=ONE)
    order.field.add(
        name="at", number=2, type=MESSAGE, label=ONE, type_name=".google.protobuf.Timestamp"
    )
    order.field.add(
        name="lines", number=3, type=MESSAGE, label=MANY, type_name=f".{package}.Order.Line"
    )
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    for one in (money, file):
        pool.Add(one)
    return lambda name: message_factory.GetMessageClass(
        pool.FindMessageTypeByName(f"{package}.{name}")
    )


LINE = {"item": "bolt", "price": {"units": "12", "currency": "EUR"}}
ORDER = {"id": "1", "at": "2026-03-01T12:00:00.000001Z", "lines": [LINE, {"item": "nut"}]}


async def test_protobuf_of_confluent_kafka_is_read_and_written(
    client, cluster, contents, spark, url
):
    classes = message_classes(f"p{uuid4().hex}")
    order, line = classes("Order"), classes("Order.Line")
    source, copy, other = (f"{name}-{uuid4().hex}" for name in ("orders", "copies", "others"))
    await client.create_topics(*(NewTopic(name, 1, 3) for name in (source, copy, other)))
    with SchemaRegistryClient({"url": url}) as registry:

        def written(kind: Any, content: Mapping[str, Any], part: str) -> bytes:
            write = protobuf.ProtobufSerializer(kind, registry, {"use.deprecated.format": False})
            found: bytes = write(
                json_format.ParseDict(content, kind()), SerializationContext(source, part)
            )
            return found

        def read(kind: Any, record: bytes | None, topic: str, part: str) -> Any:
            deserialize = protobuf.ProtobufDeserializer(
                kind, {"use.deprecated.format": False}, registry
            )
            message = deserialize(record, SerializationContext(topic, part))
            return json_format.MessageToDict(message)

        key, value = (
            written(line, LINE, MessageField.KEY),
            written(order, ORDER, MessageField.VALUE),
        )
        assert key[5:8] == b"\x04\x02\x00", "two indexes: 1, and 0 within it"
        assert value[5:7] == b"\x02\x02", "one index: 1"
        records = [Record(key=key, value=value), Record(key=key, value=None), Record(value=value)]
        await client.produce(source, records, partition=0)

        options = {"schema.registry.url": url, "record.name": order.DESCRIPTOR.full_name}
        given = {"kafka.bootstrap.servers": cluster.bootstrap}
        frame = spark.read.format("minikafka").options(**given, subscribe=source).load()
        try:
            orders = decoded(frame, "confluent_protobuf", options | {"topic": source})
        except RegistryError as error:
            if "cannot compile" not in str(error):
                raise
            pytest.skip(f"{url} does not compile files with references")
        rows = orders.orderBy("offset").select("value").collect()
        assert rows[0]["value"].lines[0].price.currency == "EUR"
        assert rows[0]["value"].at.microsecond == 1
        assert [row["value"] is None for row in rows] == [False, True, False]
        same = encoded(orders, "confluent_protobuf", options | {"subject": f"{source}-value"})
        copies = same.select("value").write.format("minikafka").mode("append")
        copies.options(**given, topic=other).save()
        assert [one.value for one in await contents(other)] == [value, None, value]

        at = f'"schema.registry.url" = "{url}", "record.name" = "{order.DESCRIPTOR.full_name}'
        of_value = f'format = "confluent_protobuf", subject = "{source}-value", {at}"'
        of_key = f'format = "confluent_protobuf", subject = "{source}-key", {at}.Line"'
        definition = parse(
            f"""
            [pipeline]
            name = "orders"
            trigger = "batch"
            [source.orders]
            topic = "{source}"
            decode = {{ {of_value} }}
            decode_key = {{ {of_key} }}
            [[step]]
            name = "known"
            sql = "select id + 1 id, at, lines, _key from orders where _key.price.units = 12 and id > 0"
            [sink]
            kind = "topic"
            topic = "{copy}"
            encode = {{ {of_value} }}
            encode_key = {{ {of_key}, column = "_key" }}
            """,
            "f.toml",
            Overrides(lambda: cluster.bootstrap),
        )
        run(spark, definition, Report(Silent()))
        [found] = await contents(copy)
        assert found.key == key
        assert read(order, found.value, copy, MessageField.VALUE) == ORDER | {"id": "2"}
        assert read(line, found.key, copy, MessageField.KEY) == LINE
