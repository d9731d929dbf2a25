"""Delivery of the data source to Spark: the archive for executors, and the module that Spark loads automatically."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from minikafka.spark import shipping

ROOT = Path(__file__).parents[3]
AUTOLOAD = "pyspark_minikafka.py"


@pytest.mark.parametrize("version", ["standard", "editable"])
def test_wheel_contains_the_module_that_spark_loads(tmp_path, version):
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=[version])
    with zipfile.ZipFile(wheel) as archive:
        source = archive.read(AUTOLOAD)
    assert source == (ROOT / "minikafka" / "spark" / "autoload.py").read_bytes()


def run(archive: Path, program: str) -> str:
    """Run a Python program that can import minikafka only from the archive."""
    command = [sys.executable, "-c", program]
    environment = os.environ | {"PYTHONPATH": str(archive)}
    return subprocess.run(
        command, env=environment, cwd=archive.parent, check=True, capture_output=True, text=True
    ).stdout.strip()


def test_archive_alone_registers_the_source_and_ships_itself(tmp_path):
    archive = tmp_path / shipping.NAME
    shipping.write_archive(archive)
    program = (
        "import pyspark_minikafka as found; from minikafka.spark import session, shipping; "
        "print(found.__file__, found.DefaultSource.name(), shipping.running_archive())"
    )
    assert run(archive, program) == f"{archive}/{AUTOLOAD} minikafka {archive}"


def test_archive_contains_only_packages_that_executors_need(tmp_path):
    archive = tmp_path / shipping.NAME
    shipping.write_archive(archive)
    names = zipfile.ZipFile(archive).namelist()
    packages = {name.split("/")[1] for name in names if name.count("/") > 1}
    assert packages == {"base", "checks", "kafka", "runtime", "security", "spark"}
    assert archive.stat().st_size < 550_000


def test_tasks_import_only_numpy_and_pyarrow_from_the_archive(tmp_path):
    archive = tmp_path / shipping.NAME
    shipping.write_archive(archive)
    program = (
        "import sys; from minikafka.spark import replicas; "
        "from minikafka.spark.sink import producer; from minikafka.spark.source import readers; "
        "heavy = 'aiokafka backports.zstd cramjam cryptography fastcrc jwt kio lz4 zstandard'.split(); "
        "heavy.append('minikafka.kafka.records.batch'); "
        "print([name for name in heavy if name in sys.modules])"
    )
    assert run(archive, program) == "[]"


def test_archive_is_written_once_per_version_of_the_code(tmp_path):
    first = shipping.cached_archive(tmp_path)
    written = first.stat()
    assert shipping.cached_archive(tmp_path) == first
    assert first.stat() == written
