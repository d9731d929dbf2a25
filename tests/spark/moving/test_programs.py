"""Programs as tutorials of Spark and Kafka have them, run with the name of the format changed.

Each program of `programs/` is written for Spark's own Kafka connector, and leaves a DataFrame in `result`. The tests
change only the name of the format. If the jars of the connector are there, the same programs also run unchanged.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest
from support.spark.spark_connector import needs_connector

from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.tools.cluster import LocalCluster

PROGRAMS: Final = Path(__file__).parent / "programs"
START_MS: Final = 1_700_000_000_000
MINUTE_MS: Final = 60_000


def plain(*texts: str) -> list[Record]:
    return [Record(value=text.encode()) for text in texts]


def keyed(*pairs: str) -> list[Record]:
    """Return a record for each text `KEY VALUE`."""
    return [
        Record(key=key.encode(), value=value.encode())
        for key, value in (pair.split(" ", 1) for pair in pairs)
    ]


def at(minutes: float, value: str, key: str | None = None) -> Record:
    """Return a record with a time after `START_MS`."""
    timestamp = START_MS + round(minutes * MINUTE_MS)
    return Record(key=key.encode() if key else None, value=value.encode(), timestamp=timestamp)


def click(user: str, page: str, time: str) -> str:
    return f'{{"user_id": "{user}", "page": "{page}", "event_time": "2026-11-29 {time}"}}'


FEEDS: Final[dict[str, dict[str, list[list[Record]]]]] = {
    "word_count": {
        "tutorial-lines": [plain("apache spark", "apache kafka"), plain("spark")],
    },
    "clickstream_windows": {
        "tutorial-clicks": [
            plain(
                click("a", "/home", "10:00:00"),
                click("b", "/home", "10:01:00"),
                click("a", "/cart", "10:04:00"),
                click("c", "/home", "10:12:00"),
                click("c", "/home", "10:02:30"),
                click("d", "/cart", "10:13:00"),
                click("e", "/home", "10:03:00"),
                click("e", "/home", "10:30:00"),
            )
        ],
    },
    "json_etl": {
        "tutorial-orders": [
            plain('{"id":1,"country":"DE","amount":10.5}', "damaged"),
            plain('{"id":2,"country":"FR","amount":3}', '{"id":3,"country":"DE","amount":1.5}'),
        ],
    },
    "deduplication": {
        "tutorial-devices": [
            keyed('d1 {"id":"e0"}', 'd1 {"id":"e1"}', 'd1 {"id":"e1"}'),
            keyed('d2 {"id":"e1"}', 'd2 {"id":"e2"}', 'd2 {"id":"e2"}'),
        ],
    },
    "ad_impressions_join": {
        "tutorial-impressions": [[at(0, "ad1"), at(10, "ad2"), at(11, "ad3")]],
        "tutorial-ad-clicks": [[at(30, "ad1"), at(130, "ad2"), at(5, "ad3")]],
    },
    "enrichment": {
        "tutorial-payments": [keyed("c1 5", "c2 7"), keyed("c3 1")],
    },
    "upserts": {
        "tutorial-accounts": [keyed("a 1", "b 2", "a 3", "c 4", "b 5", "a 6")],
    },
    "topic_to_topic": {
        "tutorial-celsius": [
            [
                Record(key=b"oslo", value=b"-40", headers=(("unit", b"C"), ("unit", b"c"))),
                Record(key=b"rome", value=b"0"),
            ],
            [Record(key=b"cairo", value=b"100", headers=(("source", b"airport"),))],
        ],
    },
    "hourly_report": {
        "tutorial-sales": [
            [at(-1, "1", "east"), at(0, "2", "east"), at(30, "3", "west"), at(60, "4", "east")],
            [at(1, "10", "west")],
        ],
    },
    "pattern_audit": {
        "tutorial-audit-users": [plain(*"12345"), plain("6")],
        "tutorial-audit-orders": [plain(*"abcdef")],
    },
}
"""The records of each partition of each topic that a program reads or writes."""

OUTPUTS: Final = {"topic_to_topic": "tutorial-fahrenheit"}
"""The topic to which a program writes."""

RESULTS: Final[dict[str, list[tuple]]] = {
    "word_count": [("apache", 2), ("kafka", 1), ("spark", 2)],
    "clickstream_windows": [
        ("2026-11-29 10:00:00", "/cart", 1),
        ("2026-11-29 10:00:00", "/home", 3),
        ("2026-11-29 10:10:00", "/cart", 1),
        ("2026-11-29 10:10:00", "/home", 1),
    ],
    "json_etl": [("DE", 2, 12.0), ("FR", 1, 3.0)],
    "deduplication": [("d1", "e1"), ("d2", "e1"), ("d2", "e2")],
    "ad_impressions_join": [("ad1", "INTERVAL '0 00:30:00' DAY TO SECOND")],
    "enrichment": [("c1", 5, "Ada"), ("c2", 7, "Grace"), ("c3", 1, None)],
    "upserts": [("a", 6), ("b", 5), ("c", 4)],
    "topic_to_topic": [
        ("cairo", "212.0", 1, "source=airport"),
        ("oslo", "-40.0", 0, "unit=C,unit=c"),
        ("rome", "32.0", 2, ""),
    ],
    "hourly_report": [("east", 2), ("west", 13)],
    "pattern_audit": [
        (0, "tutorial-audit-orders", 0, 3),
        (0, "tutorial-audit-users", 0, 2),
        (0, "tutorial-audit-users", 1, 1),
        (1, "tutorial-audit-orders", 0, 3),
        (1, "tutorial-audit-users", 0, 3),
    ],
}


async def feed(cluster: LocalCluster, topics: dict[str, list[list[Record]]]) -> None:
    """Create topics with these records, unless an earlier test has created them.

    Some records have timestamps of 2023. With the default retention, a pass between two tests would delete them.
    """
    async with Client(cluster.bootstrap) as client:
        known = await client.list_topics()
        for name, partitions in topics.items():
            if name in known:
                continue
            await client.create_topics(NewTopic(name, len(partitions), 3, {"retention.ms": "-1"}))
            for partition, records in enumerate(partitions):
                if records:
                    await client.produce(name, records, partition=partition)
            await cluster.expire(name)


async def create_outputs(cluster: LocalCluster, program: str, form: str) -> None:
    """Create the topic to which a program writes. Each format has its own."""
    if program in OUTPUTS:
        async with Client(cluster.bootstrap) as client:
            await client.create_topics(NewTopic(f"{OUTPUTS[program]}-{form}", 3, 3))


def run(program: str, form: str, arguments: list[str], patch: pytest.MonkeyPatch) -> list[tuple]:
    """Run a program with the name of the format changed; return its rows in order."""
    path = PROGRAMS / f"{program}.py"
    text = path.read_text()
    assert 'format("kafka")' in text
    text = text.replace('format("kafka")', f'format("{form}")')
    if output := OUTPUTS.get(program):
        text = text.replace(output, f"{output}-{form}")
    patch.setattr(sys, "argv", [str(path), *arguments])
    names: dict[str, Any] = {"__name__": program}
    exec(compile(text, str(path), "exec"), names)
    return sorted(tuple(row) for row in names["result"].collect())


def test_every_program_has_records_and_a_result():
    names = {path.stem for path in PROGRAMS.glob("*.py")}
    assert names == FEEDS.keys() == RESULTS.keys()
    assert len(names) == 10


@pytest.mark.parametrize("program", RESULTS)
async def test_tutorial_program_runs_with_the_name_of_the_format_changed(
    spark, cluster, tmp_path, monkeypatch, program
):
    await feed(cluster, FEEDS[program])
    await create_outputs(cluster, program, "minikafka")
    found = run(program, "minikafka", [cluster.bootstrap, str(tmp_path)], monkeypatch)
    assert found == RESULTS[program]


@needs_connector
@pytest.mark.parametrize("program", RESULTS)
async def test_tutorial_program_has_the_same_result_with_the_connector(
    spark, cluster, tmp_path, monkeypatch, program
):
    await feed(cluster, FEEDS[program])
    await create_outputs(cluster, program, "kafka")
    found = run(program, "kafka", [cluster.bootstrap, str(tmp_path)], monkeypatch)
    assert found == RESULTS[program]
