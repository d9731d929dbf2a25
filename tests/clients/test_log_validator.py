"""Produced batches are accepted and refused as by LogValidator of Kafka 3.9.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import struct
import time
from pathlib import Path
from typing import Final

import pytest
from support.kafka.produced_batches import KAFKA_DIFFERS, batches

from minikafka.base.errors import ErrorCode
from minikafka.kafka.records.batch import Record, build
from minikafka.kafka.records.header import LOG_APPEND_TIME
from minikafka.kafka.records.rules import RecordRules
from minikafka.kafka.records.walk import Walk, judge

JARS: Final = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
PROGRAM: Final = Path(__file__).parent.parent / "support" / "java" / "LogValidation.java"

pytestmark = pytest.mark.skipif(
    not JARS or shutil.which("java") is None or not any(Path(JARS).glob("kafka-storage-3*.jar")),
    reason="MINIKAFKA_KAFKA_JARS names no directory with the jars of Kafka",
)


async def validated(folder: Path, cases: dict[str, tuple[str, bytes]]) -> dict[str, list[str]]:
    """Return what the program prints about each batch after its name. `cases`: (rules of the topic, batch) by name."""
    file = folder / "batches"
    with file.open("wb") as out:
        for name, (rules, batch) in cases.items():
            for field in (name.encode(), rules.encode(), batch):
                out.write(struct.pack(">i", len(field)) + field)
    process = await asyncio.create_subprocess_exec(
        "java", "-cp", f"{JARS}/*", str(PROGRAM), str(file), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    rows = [line.split("\t") for line in printed.decode().splitlines()]
    assert [name for name, *_ in rows] == list(cases)
    return {name: fields for name, *fields in rows}


async def test_kafkas_log_validator_and_our_tests_agree_which_produced_batches_are_valid(
    tmp_path: Path,
) -> None:
    """The broker also refuses batches that Kafka accepts although Kafka's consumer cannot read them."""
    cases = batches()
    found = await validated(tmp_path, {name: ("", batch) for name, (batch, _) in cases.items()})
    kafka = {name: error for name, (error, *_) in found.items()}
    readable = {name: read for name, (_, read, _) in found.items()}
    accepted = {name for name, (_, is_sound) in cases.items() if is_sound}
    assert {name for name in cases if readable[name] == "read"} == accepted
    assert {name for name in cases if kafka[name] == "NONE"} - KAFKA_DIFFERS == (
        accepted - KAFKA_DIFFERS
    )
    assert set(kafka.values()) == {"NONE", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR"}


def batch(codec: int, *rows: tuple[bytes | None, int], attributes: int = 0) -> bytes:
    """Return a batch of records with these keys and timestamps."""
    made = [Record(timestamp=at, key=key, value=b"v") for key, at in rows]
    return build(made, codec=codec, attributes=attributes)


async def test_kafkas_log_validator_names_the_same_bad_records_with_the_same_messages(
    tmp_path: Path,
) -> None:
    now = time.time_ns() // 1_000_000
    good, keyless, old, late = (b"k", now), (None, now), (b"k", 7), (b"k", 2 * now)
    rules = {
        "": RecordRules(1 << 30),
        "compact": RecordRules(1 << 30, needs_keys=True),
        "limits": RecordRules(1 << 30, distances=(3_600_000, 3_600_000)),
        "append": RecordRules(1 << 30, log_append_time=True),
    }
    cases: dict[str, tuple[str, bytes]] = {}
    for codec in range(5):
        cases[f"no key {codec}"] = "compact", batch(codec, good, keyless, good, keyless)
        cases[f"many without keys {codec}"] = "compact", batch(codec, *[keyless] * 5)
        cases[f"old and late {codec}"] = "limits", batch(codec, good, old, late, (b"k", -1))
        for topic in ("", "append"):
            dated = batch(codec, old, old, attributes=LOG_APPEND_TIME)
            cases[f"append time {topic} {codec}"] = topic, dated
        cases[f"old append time {codec}"] = "limits", dated
    found = await validated(tmp_path, cases)
    for name, (topic, data) in cases.items():
        walk = judge(memoryview(data), 0, len(data), rules[topic], 1 << 30, now)
        assert isinstance(walk, Walk)
        while walk.step():
            pass
        error, _, texts = found[name]
        code = walk.verdict if isinstance(walk.verdict, int) else 0
        assert ErrorCode(code).name == error, name
        message, bad = ("", []) if walk.errors is None else walk.errors.texts("t-0")
        ours = [message, *(f"{index} {text}" for index, text in bad)] if bad else [""]
        assert list(map(plain, ours)) == list(map(plain, texts.split("|"))), name


def plain(text: str) -> str:
    """Return a message without what depends on the time, or on how Java prints a record."""
    text = re.sub(r"within \[\d+, \d+\]", "within []", text)
    return re.sub(
        r"message (Partial)?DefaultRecord\(offset=(\d+).*?\)", r"message with offset \2", text
    )
