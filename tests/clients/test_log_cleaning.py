"""Our log cleaner leaves the same batches as Apache Kafka's cleaner on the same log files.

Runs only where MINIKAFKA_KAFKA_JARS names a directory with the jars of Kafka 3.9 and a `java` is on the path.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest
from support.storage.cleaning import BIG_MAP, carry_out, described, segment_bytes, task, varied_log
from support.storage.logs import open_log

from minikafka.runtime.storage import DiskStorage
from minikafka.storage.log.cleaner.task import CleanedGroup
from minikafka.storage.log.log import Log

JARS: Final = os.environ.get("MINIKAFKA_KAFKA_JARS", "")
PROGRAM: Final = Path(__file__).parent.parent / "support" / "java" / "LogCleaning.java"
HOUR: Final = 3_600_000
SEEDS: Final = range(3)

pytestmark = pytest.mark.skipif(
    not JARS or shutil.which("java") is None or not any(Path(JARS).glob("kafka-storage-3*.jar")),
    reason="MINIKAFKA_KAFKA_JARS names no directory with the jars of Kafka",
)


def cleaned_by_kafka(lines: list[str], file: Path) -> list[int]:
    """Write the lines to `file`, and run Kafka's Cleaner once for each line; return the end offsets.

    A line has the arguments of one cleaning, which LogCleaning.java describes.
    """
    file.write_text("\n".join(lines) + "\n")
    command = ["java", "-cp", f"{JARS}/*", str(PROGRAM), str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    return [int(line) for line in ended.stdout.split()]


def replace(log: Log, groups: list[CleanedGroup]) -> None:
    """Replace the segment files of a closed log with their cleaned copies."""
    directory = Path(log.directory)
    for group in groups:
        for base in group.bases:
            for suffix in (".log", ".index", ".timeindex"):
                (directory / f"{base:020d}{suffix}").unlink()
            (directory / f"{base:020d}.txnindex").unlink(missing_ok=True)
        for file in directory.glob(f"{group.bases[0]:020d}*.cleaned"):
            file.rename(file.with_suffix(""))


@pytest.mark.parametrize("memory", [BIG_MAP, 24 * 120])
def test_cleaned_log_has_the_same_batches_as_a_log_cleaned_by_kafka(
    tmp_path: Path, memory: int
) -> None:
    """Each log is cleaned three times: first all but its last eight segments, then twice all but its last segment.

    Delete markers have expired before the third cleaning. With the smaller offset map (`memory`), each cleaning ends
    when the map is full, in the middle of a batch.
    """
    storage, lines, ends = DiskStorage(), [], []
    now = int(time.time() * 1_000)
    for seed in SEEDS:
        own, other = tmp_path / "own" / f"t-{seed}", tmp_path / "kafka" / f"t-{seed}"
        log = varied_log(storage, str(own), random.Random(seed), now, delete_retention_ms=HOUR)
        log.close()
        shutil.copytree(own, other)
        first_dirty = 0
        for slot, wall_ms in ((-8, now), (-1, now + HOUR // 2), (-1, now + 3 * HOUR)):
            log = open_log(
                storage,
                directory=str(own),
                clean=True,
                first_dirty_offset=first_dirty,
                segment_bytes=6_000,
                delete_retention_ms=HOUR,
            )
            uncleanable = log.segments[slot].base_offset
            given = task(log, wall_ms, uncleanable, dedupe_bytes=memory)
            if first_dirty == given.uncleanable_offset:
                # Everything is clean: clean the last segment again.
                first_dirty = log.segments[slot - 1].base_offset
                log.gaps.mark(first_dirty)
                given = task(log, wall_ms, uncleanable, dedupe_bytes=memory)
            log.close()
            groups, outcome = carry_out(storage, given)
            replace(log, groups)
            lines.append(f"{other} {first_dirty} {uncleanable} {wall_ms} {HOUR} 6000 {memory}")
            ends.append(outcome.end_offset)
            first_dirty = outcome.end_offset
    assert cleaned_by_kafka(lines, tmp_path / "lines") == ends
    compare(storage, tmp_path)


def test_transaction_across_the_last_stable_offset_is_cleaned_as_by_kafka(
    tmp_path: Path,
) -> None:
    """Each log has one transaction that never ends. Other transactions begin below and end above its first offset."""
    storage, lines, ends = DiskStorage(), [], []
    now = int(time.time() * 1_000)
    for seed in SEEDS:
        own, other = tmp_path / "own" / f"t-{seed}", tmp_path / "kafka" / f"t-{seed}"
        log = varied_log(storage, str(own), random.Random(seed), now, open_from=150)
        stable = log.producers.first_unstable_offset(log.log_end_offset)
        log.close()
        shutil.copytree(own, other)
        log = open_log(storage, directory=str(own), clean=True, segment_bytes=6_000)
        given = task(log, now, stable)
        log.close()
        groups, outcome = carry_out(storage, given)
        replace(log, groups)
        retention = given.delete_retention_ms
        lines.append(f"{other} 0 {given.uncleanable_offset} {now} {retention} 6000 {BIG_MAP}")
        ends.append(outcome.end_offset)
    assert cleaned_by_kafka(lines, tmp_path / "lines") == ends
    compare(storage, tmp_path)
    for seed in SEEDS:
        found = aborted_in(tmp_path / "own" / f"t-{seed}")
        assert found == aborted_in(tmp_path / "kafka" / f"t-{seed}") != {}


def compare(storage: DiskStorage, directory: Path) -> None:
    """Assert that both cleaners left the same batches in the same segments."""
    for seed in SEEDS:
        own, other = directory / "own" / f"t-{seed}", directory / "kafka" / f"t-{seed}"
        kept, kafka = segment_bytes(storage, str(own)), segment_bytes(storage, str(other))
        assert list(kept) == list(kafka)
        for name, data in kept.items():
            assert described(data) == described(kafka[name]), (seed, name)


def aborted_in(log: Path) -> dict[str, bytes]:
    """Return the content of each transaction index that has an entry."""
    found = {path.name: path.read_bytes() for path in log.glob("*.txnindex")}
    return {name: data for name, data in found.items() if data}
