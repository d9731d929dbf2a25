"""A job is submitted to a real standalone cluster whose machines have pyspark and its libraries, but no minikafka."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from minikafka.client import Client, NewTopic
from minikafka.kafka.records.batch import Record
from minikafka.spark import shipping
from scripts.standalone_spark import SPARK_HOME, StandaloneSpark, environment

JOB = Path(__file__).with_name("standalone_job.py")


@pytest.fixture
def bare_python(tmp_path) -> Path:
    """Return a Python interpreter that has the installed libraries, but not minikafka."""
    home = tmp_path / "bare"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = home / "lib" / version / "site-packages"
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    python = home / "bin" / "python"
    missing = subprocess.run([python, "-c", "import minikafka"], capture_output=True, cwd=tmp_path)
    assert b"ModuleNotFoundError" in missing.stderr
    return python


def submit(master: str, archive: Path, python: Path, arguments: list[str]) -> None:
    java = os.environ["SPARK_DAEMON_JAVA_OPTS"]
    command = [
        *[str(SPARK_HOME / "bin" / "spark-submit"), "--master", master],
        *["--py-files", str(archive), "--conf", "spark.ui.enabled=false"],
        *["--executor-memory", "512m", "--conf", "spark.sql.shuffle.partitions=2"],
        *["--conf", "spark.cores.max=2", "--conf", "spark.executor.cores=1"],
        *["--conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"],
        *["--conf", "spark.scheduler.maxRegisteredResourcesWaitingTime=120s"],
        *["--conf", "spark.sql.codegen.wholeStage=false"],
        *["--conf", "spark.sql.codegen.factoryMode=NO_CODEGEN", "--driver-java-options", java],
        *["--conf", f"spark.executor.extraJavaOptions={java}", str(JOB), *arguments],
    ]
    variables = environment() | {"PYTHONPATH": str(archive), "PYSPARK_PYTHON": str(python)}
    submitted = subprocess.run(
        command, env=os.environ | variables, cwd=archive.parent, capture_output=True, text=True
    )
    assert submitted.returncode == 0, (submitted.stdout + submitted.stderr)[-4_000:]


@pytest.mark.timeout(400)
@pytest.mark.row("N7")
async def test_submitted_job_reads_and_writes_on_the_executors(cluster, tmp_path, bare_python):
    async with Client(cluster.bootstrap) as client:
        await client.create_topics(NewTopic("lines", 4, 3), NewTopic("copies", 2, 3))
        for partition in range(4):
            records = [Record(value=b"%d" % number) for number in range(300)]
            await client.produce("lines", records, partition=partition)
        archive = tmp_path / shipping.NAME
        shipping.write_archive(archive)
        arguments = [cluster.bootstrap, str(tmp_path / "checkpoint"), str(tmp_path / "found")]

        def run() -> None:
            with StandaloneSpark(tmp_path / "standalone", workers=1, cores=2) as standalone:
                submit(standalone.master, archive, bare_python, arguments)

        await asyncio.to_thread(run)
        copies = [
            record
            for partition in range(2)
            for record in (await client.fetch("copies", partition, 0)).records
        ]
    found = json.loads((tmp_path / "found").read_text())
    assert found["batch"] == [
        [partition, offset] for partition in range(4) for offset in range(300)
    ]
    assert found["batches"] == [1_200]
    assert len(found["executors"]) == 2
    assert sorted(int(record.value) for record in copies) == sorted([*range(300)] * 4)
    assert {dict(record.headers)["at"].decode() for record in copies} == set(found["executors"])
