"""Apache Kafka's directories are taken over by minikafka, and given back."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from support.clusters.apache_kafka import needs_kafka

SCRIPTS = Path(__file__).parents[2] / "scripts"


@needs_kafka
async def test_records_groups_and_transactions_survive_a_takeover_and_the_way_back() -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPTS / "kafka_takeover_job.py"),
        *("--rounds", "1", "--seconds", "1", "--json"),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    facts = json.loads(printed.decode().splitlines()[-1])
    assert (process.returncode, facts["problems"]) == (0, [])
    assert facts["acknowledged"] > 0
