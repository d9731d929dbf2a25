"""A job is submitted to a real standalone cluster whose machines have pyspark and its libraries, but no minikafka.

The job reads over TLS with a certificate, and writes over TLS after a login.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from support.security.client_cells import PARTITIONS, Place
from support.security.client_logins import Login
from support.spark.secured_rows import read

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
    # scripts/test-pyspark has two directories: one with PySpark, and one with all other packages.
    libraries = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "libraries.pth").write_text("\n".join(libraries))
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


@pytest.fixture
def place(tmp_path) -> Iterator[Place]:
    """Return a broker with certificates and users."""
    with Place(tmp_path, 1) as running:
        yield running


def options(place: Place, login: Login, path: Path) -> dict[str, str]:
    """Return the options of a login with certificates in PEM. The files of the login are below `path`."""
    properties = login._properties(login.write(path, login.protocol))
    if login.own is not None:
        properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(login.own.pem)}
    given = {
        f"kafka.{name}": value
        for name, value in properties.items()
        if ".key" not in name or "password" not in name
    }
    return given | {"kafka.bootstrap.servers": place.brokers.bootstrap(login.protocol)}


@pytest.mark.timeout(400)
@pytest.mark.row("N7")
async def test_submitted_job_reads_and_writes_on_the_executors(place, tmp_path, bare_python):
    lines, copies = await place.topic(), await place.topic()
    producer = Producer(place.brokers.properties("PLAINTEXT"))
    for number in range(900):
        producer.produce(lines, b"%d" % number, partition=number % PARTITIONS)
    assert not producer.flush(60)
    given = {
        "source": options(place, place.certificate(), tmp_path) | {"subscribe": lines},
        "sink": options(place, place.sasl("SCRAM-SHA-512"), tmp_path) | {"topic": copies},
    }
    (tmp_path / "options.json").write_text(json.dumps(given))
    archive = tmp_path / shipping.NAME
    shipping.write_archive(archive)
    arguments = [str(tmp_path / name) for name in ("options.json", "checkpoint", "found")]

    def run() -> None:
        with StandaloneSpark(tmp_path / "standalone", workers=1, cores=2) as standalone:
            submit(standalone.master, archive, bare_python, arguments)

    await asyncio.to_thread(run)
    found = json.loads((tmp_path / "found").read_text())
    assert found["batch"] == [
        [partition, offset] for partition in range(PARTITIONS) for offset in range(300)
    ]
    assert found["batches"] == [900]
    assert len(found["executors"]) == 2
    assert sorted(map(int, read(given["source"], copies))) == list(range(900))
