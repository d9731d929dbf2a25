"""The configuration with which each client library connects to a secure cluster."""

from __future__ import annotations

import json
import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple

from minikafka.base.properties import encode_property
from minikafka.security.sasl_client import Login
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.secure.files import LISTENER, client_properties

PROPERTIES, LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA, KAFKAJS, SPARK = (
    "properties",
    "librdkafka",
    "kafka-python",
    "aiokafka",
    "kafkajs",
    "spark",
)
KINDS: Final = (PROPERTIES, LIBRDKAFKA, KAFKA_PYTHON, AIOKAFKA, KAFKAJS, SPARK)


class ClientAccess(NamedTuple):
    """Where a client connects, what it trusts, and how it logs in. `servers`: host:port,…"""

    servers: str
    authority: Path
    login: Login


def client_config(kind: str, access: ClientAccess) -> Any:
    """Return the configuration of one of `KINDS`: a text for `properties` and `kafkajs`, else a dictionary.

    Raises ClusterError for another kind.
    """
    if kind == PROPERTIES:
        return _lines(_java(access))
    if kind == LIBRDKAFKA:
        return _librdkafka(access)
    if kind == KAFKA_PYTHON:
        return {**_python(access), "ssl_cafile": str(access.authority)}
    if kind == AIOKAFKA:
        context = ssl.create_default_context(cafile=str(access.authority))
        return {**_python(access), "ssl_context": context}
    if kind == KAFKAJS:
        return _kafkajs(access)
    if kind == SPARK:
        return {f"kafka.{name}": value for name, value in _java(access).items()}
    raise ClusterError(f"there is no client {kind!r}: choose one of {', '.join(KINDS)}")


def blocks(access: ClientAccess) -> list[str]:
    """Return the lines that `up` prints: for each kind a heading and the configuration."""
    texts = (f"\n# {kind}: {_USES[kind]}\n{_block(kind, access)}" for kind in KINDS)
    return [line for text in texts for line in text.splitlines()]


_USES: Final = {
    PROPERTIES: "Java clients and Kafka's tools, and --command-config of minikafka",
    LIBRDKAFKA: "confluent-kafka, and kcat -F FILE",
    KAFKA_PYTHON: "KafkaProducer(**config)",
    AIOKAFKA: "AIOKafkaProducer(**config)",
    KAFKAJS: "kafka.producer()",
    SPARK: 'spark.read.format("minikafka").options(**config); "kafka" needs the package spark-sql-kafka-0-10',
}
"""What each block is for, by kind."""


def _block(kind: str, access: ClientAccess) -> str:
    if kind == AIOKAFKA:
        context = f"ssl.create_default_context(cafile={_quoted(str(access.authority))})"
        rows = {name: _quoted(value) for name, value in _python(access).items()}
        return f"import ssl\n\n{_assignment({**rows, 'ssl_context': context})}"
    config = client_config(kind, access)
    if isinstance(config, str):
        return config
    if kind == LIBRDKAFKA:
        return "".join(f"{name}={value}\n" for name, value in config.items())
    return _assignment({name: _quoted(value) for name, value in config.items()})


def _assignment(rows: dict[str, str]) -> str:
    lines = [f"    {_quoted(name)}: {value},\n" for name, value in rows.items()]
    return f"config = {{\n{''.join(lines)}}}\n"


def _java(access: ClientAccess) -> dict[str, str]:
    own = client_properties(access.authority, access.login.user, access.login.password)
    return {"bootstrap.servers": access.servers, **own}


def _lines(entries: dict[str, str]) -> str:
    return "".join(f"{encode_property(name, value)}\n" for name, value in entries.items())


def _librdkafka(access: ClientAccess) -> dict[str, str]:
    return {
        "bootstrap.servers": access.servers,
        "security.protocol": LISTENER,
        "ssl.ca.location": str(access.authority),
        "sasl.mechanism": access.login.mechanism,
        "sasl.username": access.login.user,
        "sasl.password": access.login.password,
    }


def _python(access: ClientAccess) -> dict[str, str]:
    return {
        "bootstrap_servers": access.servers,
        "security_protocol": LISTENER,
        "sasl_mechanism": access.login.mechanism,
        "sasl_plain_username": access.login.user,
        "sasl_plain_password": access.login.password,
    }


def _kafkajs(access: ClientAccess) -> str:
    login = access.login
    sasl = {
        "mechanism": login.mechanism.lower(),
        "username": login.user,
        "password": login.password,
    }
    return f"""\
const {{ Kafka }} = require("kafkajs");
const kafka = new Kafka({{
  brokers: {_quoted(access.servers.split(","))},
  ssl: {{ ca: [require("fs").readFileSync({_quoted(str(access.authority))})] }},
  sasl: {_quoted(sasl)},
}});
"""


def _quoted(value: object) -> str:
    """Return a value as a literal of JSON, Python and JavaScript."""
    return json.dumps(value, ensure_ascii=False)
