"""Whole brokers that get names with line feeds and escape sequences: no line of their logs is forged."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from minikafka.base.errors import KafkaError
from minikafka.client import NewTopic
from minikafka.client.connection import BrokerConnection
from minikafka.kafka.messages import table
from minikafka.kafka.messages.table import Field, Structure
from minikafka.kafka.wire import codec
from minikafka.kafka.wire.versions import LIST_OFFSETS, PRODUCE, SERVED
from minikafka.simulation.cluster import MemoryCluster
from minikafka.simulation.loop import run_seeded
from minikafka.tools.cli.processes.log_lines import LINE, LineFormatter
from minikafka.zookeeper.nodes import layout

EVIL = "t\n2026-01-01 00:00:00,000 ERROR   forged: x\r\x1b[2J\x9b31m\x7f\u2028\u202e"
ESCAPED = r"t\n2026-01-01 00:00:00,000 ERROR   forged: x\r\u001b[2J\u009b31m\u007f\u2028\u202e"


@contextmanager
def broker_log() -> Iterator[io.StringIO]:
    """Return the log that a broker process would write."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(LineFormatter(LINE))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def check(log: io.StringIO) -> list[str]:
    """Check that every line was written by a logger, or belongs to a traceback; return the lines."""
    lines = log.getvalue().splitlines()
    assert len(lines) == log.getvalue().count("\n")
    for line in lines:
        assert line.isprintable()
        assert line.startswith("    ") or log_line(line), line
        assert not line.lstrip().startswith("2026-01-01 00:00:00,000 ERROR")
    return lines


def log_line(line: str) -> bool:
    level = line[24:31].strip()
    return line[4:5] + line[7:8] == "--" and level in logging.getLevelNamesMapping()


def filled(structure: Structure, version: int, text: str) -> dict[str, Any]:
    """Return the values of a request with `text` in every string, and one element in every array."""
    return {
        field.name: filled_field(field, version, text)
        for field in structure.fields
        if version in field.versions
    }


def filled_field(field: Field, version: int, text: str) -> Any:
    if field.structure is not None:
        found: Any = filled(field.structure, version, text)
    elif field.type == "string":
        found = text
    else:
        return field.default_in(version)
    return (found,) if field.is_array else found


async def send(cluster: MemoryCluster, api: int, version: int) -> None:
    """Send a request full of evil strings, with an evil client id; wait for the response or the end."""
    made = await cluster.transport.connect(
        lambda: BrokerConnection(EVIL, cluster.clock), "127.0.0.1", 9092
    )
    assert isinstance(made, BrokerConnection)
    values = filled(table.request(api).structure, version, EVIL)
    body = codec.request(api, version, **values)
    with suppress(OSError, KafkaError):
        await made.request(api, version, body, 1_000)
    made.close()


def test_names_in_requests_of_every_api_cannot_forge_log_lines() -> None:
    async def scenario() -> None:
        async with MemoryCluster(1, auto_create_topics_enable=False) as cluster:
            for api, (low, high) in SERVED.items():
                for version in {max(low, 3) if api == PRODUCE else low, high}:
                    await send(cluster, api, version)
            for _ in range(4):
                await send(cluster, LIST_OFFSETS, SERVED[LIST_OFFSETS][1])
                await asyncio.sleep(4)

    with broker_log() as log:
        run_seeded(1, scenario())
    lines = check(log)
    assert any("ListOffsets" in line and ESCAPED in line for line in lines)


def test_names_in_zookeeper_cannot_forge_log_lines() -> None:
    def nodes() -> dict[str, bytes]:
        broker = {"host": EVIL, "port": 1, "version": 4, "rack": EVIL, "endpoints": [EVIL]}
        rows = {"version": 1, "partitions": [{"topic": EVIL, "partition": 0, "replicas": [0]}]}
        return {
            f"{layout.BROKER_IDS}/7": json.dumps(broker).encode(),
            f"{layout.BROKER_IDS}/{EVIL}": b"{}",
            f"{layout.TOPICS}/{EVIL}": json.dumps({"partitions": {EVIL: [0]}}).encode(),
            f"{layout.TOPIC_CONFIGS}/t": json.dumps(
                {"version": 1, "config": {EVIL: EVIL}}
            ).encode(),
            layout.REASSIGN_PARTITIONS: json.dumps(rows).encode(),
            layout.PREFERRED_ELECTION: EVIL.encode(),
        }

    async def scenario() -> None:
        async with MemoryCluster(1) as cluster, cluster.client() as client:
            await client.create_topics(NewTopic("t", 1, 1))
            for path, data in nodes().items():
                with suppress(Exception):
                    await cluster.sessions[0].create(path, data)
                with suppress(Exception):
                    await cluster.sessions[0].set(path, data)
            await asyncio.sleep(5)

    with broker_log() as log:
        run_seeded(1, scenario())
    assert any("forged" in line for line in check(log))


def test_files_of_a_log_directory_cannot_forge_log_lines() -> None:
    async def scenario() -> None:
        cluster = MemoryCluster(1)
        storage = cluster.storages[0]
        for name in ("/data", f"/data/{EVIL}", f"/data/{EVIL}-0", f"/data/{EVIL}-stray"):
            storage.make_directories(name)
        storage.write_atomically("/data/recovery-point-offset-checkpoint", EVIL.encode())
        async with cluster:
            await asyncio.sleep(1)

    with broker_log() as log:
        run_seeded(1, scenario())
    assert any("forged" in line for line in check(log))
