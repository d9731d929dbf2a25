"""Produced batches are accepted and refused as by LogValidator of Kafka 3.9.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
from pathlib import Path
from typing import Final

import pytest
from support.produced_batches import KAFKA_DIFFERS, batches

JARS: Final = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
PROGRAM: Final = Path(__file__).parent.parent / "support" / "LogValidation.java"

pytestmark = pytest.mark.skipif(
    not JARS or shutil.which("java") is None or not any(Path(JARS).glob("kafka-storage-3*.jar")),
    reason="MINIKAFKA_KAFKA_JARS names no directory with the jars of Kafka",
)


async def test_kafkas_log_validator_and_our_tests_agree_which_produced_batches_are_valid(
    tmp_path: Path,
) -> None:
    """The broker also refuses batches that Kafka accepts although Kafka's consumer cannot read them."""
    cases = batches()
    file = tmp_path / "batches"
    with file.open("wb") as out:
        for name, (batch, _) in cases.items():
            for field in (name.encode(), batch):
                out.write(struct.pack(">i", len(field)) + field)
    process = await asyncio.create_subprocess_exec(
        "java", "-cp", f"{JARS}/*", str(PROGRAM), str(file), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    kafka = dict(line.split("\t")[:2] for line in printed.decode().splitlines())
    readable = dict(line.split("\t")[::2] for line in printed.decode().splitlines())
    assert set(kafka) == set(cases)
    accepted = {name for name, (_, is_sound) in cases.items() if is_sound}
    assert {name for name in cases if readable[name] == "read"} == accepted
    assert {name for name in cases if kafka[name] == "NONE"} - KAFKA_DIFFERS == (
        accepted - KAFKA_DIFFERS
    )
    assert set(kafka.values()) == {"NONE", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR"}
