"""Verdicts of the job that compares a topic with its source lines, on topics with and without differences."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark import verify as module
from minikafka.spark.verify import VerifiedFiles, verify
from minikafka.tools.cluster import LocalCluster

LINES = {
    "a.py": [b"import os", b"", b"", b"print(os)", b""],
    "b/ä.py": [b"\xff\x00 not utf-8", b"x = 1\r", b"x = 1\r"],
    "c.py": [b"%d" % index for index in range(400)],
    "empty line.py": [b""],
}


@pytest.fixture
def judge(spark, cluster: LocalCluster, tmp_path) -> Callable[..., Awaitable[VerifiedFiles]]:
    """Return a function that writes lines to a new topic and returns the verdict of its comparison with `LINES`."""
    source, output = tmp_path / "lines.parquet", tmp_path / "result"
    rows = [(name, at, line) for name, lines in LINES.items() for at, line in enumerate(lines, 1)]
    names = ("file", "line_no", "text")
    pq.write_table(pa.table(dict(zip(names, zip(*rows, strict=True), strict=True))), source)

    async def run(topic: str, sent: Mapping[str, list[bytes]]) -> VerifiedFiles:
        async with Client(cluster.bootstrap) as client:
            await client.create_topics(NewTopic(topic, 2, 3))
            for index, (name, lines) in enumerate(sent.items()):
                records = [Record(key=name.encode(), value=line) for line in lines]
                for at in range(0, len(records), 50):
                    await client.produce(topic, records[at : at + 50], partition=index % 2)
        arguments = spark, cluster.bootstrap, topic, str(source), str(output)
        return await asyncio.to_thread(verify, *arguments)

    return run


async def test_verify_passes_and_writes_each_line_with_its_record_when_none_differs(
    spark, judge, tmp_path
):
    assert await judge("complete", LINES) == VerifiedFiles(409, 409, 0, 0, 0, 0, 0)
    result = spark.read.parquet(str(tmp_path / "result")).toArrow()
    assert set(result.column("state").to_pylist()) == {"same"}
    assert result.column("text").to_pylist() == result.column("value").to_pylist()
    assert (
        len(set(zip(*result.select(["file", "line_no"]).to_pydict().values(), strict=True))) == 409
    )


async def test_verify_counts_every_kind_of_difference_between_lines_and_records(judge):
    c = LINES["c.py"]
    faulty = {
        "a.py": [b"import os", b"", b"print(os)", b""],  # one line lost
        "b/ä.py": [LINES["b/ä.py"][0], b"x = 2\r", b"x = 1\r"],  # one line changed
        "c.py": [*c[:60], *c[50:200], c[201], c[200], *c[202:]],  # ten lines duplicated, one moved
        "d.py": [b"never sent"],
        "empty line.py": [b""],
    }
    verdict = await judge("faulty", faulty)
    assert not verdict.ok
    assert verdict == VerifiedFiles(
        lines=409,
        records=409 - 1 + 10 + 1,
        lost=2,
        duplicated=10,
        reordered=1,
        differing=2,
        files_affected=4,
    )


async def test_verify_counts_every_source_line_as_lost_when_the_topic_is_empty(judge):
    assert await judge("without-lines", {}) == VerifiedFiles(409, 0, 409, 0, 0, 0, 4)


async def test_verify_command_prints_its_counts_as_json(
    spark, cluster, judge, tmp_path, capfd, monkeypatch
):
    await judge("command", LINES)
    monkeypatch.setattr(module, "session", lambda *_: spark)
    place = ["--source", f"{tmp_path}/lines.parquet", "--output", f"{tmp_path}/again"]
    arguments = ["--bootstrap", cluster.bootstrap, "--topic", "command", *place, "--json"]
    assert await asyncio.to_thread(module.main, arguments) == 0
    facts = json.loads(capfd.readouterr().out)
    assert (facts["ok"], facts["records"], facts["lost"]) == (True, 409, 0)
