"""Brokers of release 0.1.0 and of this one take turns in one cluster, under producers, a copy job and a group."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from minikafka.base.coordination import CONTROLLER, LEADERS

ROOT = Path(__file__).parents[2]
WHEEL = ROOT / "tests/support/upgrade/minikafka-0.1.0-py3-none-any.whl"
SHA256 = "01a12962cee0d3d2b238f62f4fcdadc1c003295cfe1da3f2fab4b7163dd19627"
"""Of the wheel that commit 6696cdc2 gives: `git archive`, then `SOURCE_DATE_EPOCH=$(git log -1 --format=%ct 6696cdc2)
python -m hatchling build -t wheel` with hatchling 1.33.0.
"""


def test_wheel_of_the_first_release_is_the_frozen_one() -> None:
    assert hashlib.sha256(WHEEL.read_bytes()).hexdigest() == SHA256
    with ZipFile(WHEEL) as wheel:
        metadata = wheel.read("minikafka-0.1.0.dist-info/METADATA").decode()
    assert "\nVersion: 0.1.0\n" in metadata


async def rolled(coordination: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(ROOT / "scripts/rolling_upgrade_job.py"),
        *("--coordination", coordination, "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    facts = json.loads(printed.decode().splitlines()[-1])
    assert (process.returncode, facts["problems"]) == (0, [])
    assert len(facts["pauses"]) == 6
    assert facts["acknowledged"] == facts["read"] > 0


async def test_cluster_is_upgraded_and_downgraded_broker_by_broker() -> None:
    await rolled(CONTROLLER)


@pytest.mark.skipif("MINIKAFKA_LONG_TESTS" not in os.environ, reason="takes 10 s of processor time")
async def test_cluster_without_a_controller_is_upgraded_and_downgraded_broker_by_broker() -> None:
    await rolled(LEADERS)
