"""Kafka's own DumpLogSegments reads every file of a log.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 (kafka_2.13 and its
dependencies) and a `java` is on the path.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.storage.aborted import indexed
from support.storage.cleaning import varied_log
from support.storage.logs import append, batch, open_log, produce, read_all, replicate

from minikafka.kafka.records.header import HEADER
from minikafka.runtime.storage import DiskStorage
from minikafka.storage.log.log import Log

JARS = os.environ.get("MINIKAFKA_KAFKA_JARS", "")

pytestmark = pytest.mark.skipif(
    not JARS or shutil.which("java") is None,
    reason="MINIKAFKA_KAFKA_JARS names no directory of Kafka's jars",
)


def dump(*arguments: str) -> str:
    command = ["java", "-cp", f"{JARS}/*", "kafka.tools.DumpLogSegments", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "Exception" not in done.stderr, done.stderr
    return done.stdout


def every(directory: str, suffix: str) -> str:
    return ",".join(str(path) for path in sorted(Path(directory).glob(f"*{suffix}")))


def fill(log: Log) -> int:
    """Append batches with all codecs in four epochs; return the number of batches.

    Two idempotent producers send some of the batches.
    """
    chance = random.Random(1)
    sequences = {7: 0, 8: 0}
    timestamp = 1_700_000_000_000
    for i in range(400):
        count = chance.randint(1, 40)
        fields = {}
        producer = chance.choice([-1, 7, 8])
        if producer >= 0:
            fields = {
                "producer_id": producer,
                "producer_epoch": 0,
                "base_sequence": sequences[producer],
            }
            sequences[producer] += count
        timestamp += chance.randint(-50, 200)
        size, codec = chance.randint(1, 300), chance.randint(0, 4)
        append(
            log, batch(count, size=size, timestamp=timestamp, codec=codec, **fields), epoch=i // 100
        )
        if i % 3 == 0:
            log.flush()
    log.flush()
    return 400


def check_all_files(directory: str, batches: int) -> None:
    text = dump("--deep-iteration", "--files", every(directory, ".log"))
    assert text.count("isvalid: true") == batches
    assert "isvalid: false" not in text
    assert "invalid" not in text.lower().replace("isvalid", "")
    text = dump("--index-sanity-check", "--files", every(directory, ".index"))
    assert text.count("passed sanity check") == len(list(Path(directory).glob("*.index")))
    for suffix in (".index", ".timeindex"):
        text = dump("--files", every(directory, suffix))
        assert not re.search("mismatch|not found|out of order|corrupt", text, re.IGNORECASE), text
    text = dump("--files", every(directory, ".snapshot"))
    assert "producerId: 7 producerEpoch: 0" in text


def test_kafka_reads_the_files_of_leader_and_follower(tmp_path: Path) -> None:
    storage = DiskStorage()
    leader = open_log(storage, directory=f"{tmp_path}/t-0", segment_bytes=200_000)
    batches = fill(leader)
    follower = open_log(storage, directory=f"{tmp_path}/t-1", segment_bytes=150_000)
    position = 0
    while position < leader.written_position:
        data, _, position = leader.read(position, leader.written_position, 30_000)
        replicate(follower, data)
    assert read_all(follower) == read_all(leader)
    leader.close()
    follower.close()
    check_all_files(f"{tmp_path}/t-0", batches)
    check_all_files(f"{tmp_path}/t-1", batches)


def test_kafka_reads_transaction_indexes_and_open_transactions(tmp_path: Path) -> None:
    directory = f"{tmp_path}/t-0"
    log = varied_log(DiskStorage(), directory, random.Random(3), 20_000_000, open_from=250)
    expected = [
        f"version: 0 producerId: {one.producer_id} firstOffset: {one.first_offset}"
        f" lastOffset: {one.last_offset} lastStableOffset: {one.last_stable_offset}"
        for one in indexed(log)
    ]
    text = dump("--files", every(directory, ".txnindex"))
    assert [line for line in text.splitlines() if line.startswith("version")] == expected
    (start,) = (one.transaction_start for one in log.producers.active() if one.producer_id == 60)
    log.close()
    text = dump("--files", every(directory, ".snapshot").split(",")[-1])
    assert re.search(f"producerId: 60 .*currentTxnFirstOffset: OptionalLong.{start}", text)


def test_kafka_reads_a_log_after_truncation_and_recovery(tmp_path: Path) -> None:
    storage = DiskStorage()
    directory = f"{tmp_path}/t-0"
    log = open_log(storage, directory=directory, segment_bytes=200_000)
    fill(log)
    log.truncate_to(3000)
    produce(log, *[3] * 30, epoch=9)
    active = Path(log.segments[-1].path(".log"))
    log.abandon()
    with active.open("ab") as file:
        file.write(bytes(batch())[:-1])
    again = open_log(storage, directory=directory, segment_bytes=200_000)
    data = read_all(again)
    count = at = 0
    while at < len(data):
        at += 12 + HEADER.unpack_from(data, at)[1]
        count += 1
    again.close()
    check_all_files(directory, count)


def test_kafka_reads_the_files_of_an_open_log_and_of_a_log_truncated_to_zero(
    tmp_path: Path,
) -> None:
    log = open_log(DiskStorage(), directory=f"{tmp_path}/t-0")
    assert not every(log.directory, ".log"), "files come with the first batch"
    produce(log, 5)
    log.truncate_to(0)
    for suffix in (".log", ".index", ".timeindex"):
        dump("--files", every(log.directory, suffix))
    produce(log, *[5] * 300)
    log.checkpoint_indexes()
    assert dump("--files", every(log.directory, ".log")).count("isvalid: true") == 300
    assert (
        dump("--files", every(log.directory, ".index")).count("offset: ")
        == len(log.segments[0].index)
        > 0
    )
    assert dump("--files", every(log.directory, ".timeindex")).count("timestamp: ") > 0
    log.close()
