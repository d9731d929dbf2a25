"""Error messages for the user when the Python of Spark's workers lacks a package."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest
from pyspark import cloudpickle

from minikafka.spark.datasource import FORMAT, MinikafkaDataSource
from minikafka.spark.processes import fork_server

ZIPS = [str(file) for file in Path(pyspark.__file__).parent.glob("python/lib/*.zip")]
"""The zip files from which a Python installation without pyspark imports pyspark."""


@pytest.fixture
def bare(tmp_path) -> Path:
    """Return a Python interpreter without installed packages."""
    venv.create(tmp_path, symlinks=True)
    return tmp_path / "bin" / "python"


@pytest.fixture
def spark_on_bare(spark, bare) -> Iterator:
    """The Spark session. Its workers run the interpreter `bare`, as if PYSPARK_PYTHON named this interpreter."""
    context = spark.sparkContext
    usual, context.pythonExec = context.pythonExec, str(bare)
    context.environment["PYTHONPATH"] = os.pathsep.join(ZIPS)  # as in a session of `bare`
    spark.dataSource.register(MinikafkaDataSource)
    yield spark
    context.pythonExec = usual
    del context.environment["PYTHONPATH"]
    spark.dataSource.register(MinikafkaDataSource)


def test_local_workers_import_the_installed_pyspark_and_not_its_zip(spark):
    [file] = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__).collect()
    assert file == pyspark.__file__


def test_local_workers_are_forked_with_the_modules_of_a_task(spark):
    def look(_: int) -> tuple[str, bool]:
        main = sys.modules["__main__"].__spec__
        return main.name if main else "", "minikafka.spark.datasource" in sys.modules

    [found] = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert found == ("minikafka.spark.daemon", True)


@pytest.mark.skipif(fork_server.script() is None, reason="this system has no pidfd")
def test_java_process_of_a_local_session_starts_only_launchers_of_forks(spark):
    def look(_: int) -> str:
        return Path("/proc/self/cmdline").read_text()

    [command] = spark.sparkContext.parallelize([0], 1).map(look).collect()
    java = spark.sparkContext._gateway.proc.pid
    started = Path(f"/proc/{java}/task").glob("*/children")
    children = [pid for file in started for pid in file.read_text().split()]
    commands = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children]
    running = [command for command in commands if "python" in command]
    assert "minikafka.spark.processes.server" in command
    assert running
    assert [command for command in running if "processes/launcher.py" not in command] == []


def test_error_about_missing_pyarrow_names_the_workers_python_and_pyspark_python(
    spark_on_bare, bare
):
    reader = spark_on_bare.read.format(FORMAT).option("subscribe", "lines")
    with pytest.raises(Exception, match="PYTHON_DATA_SOURCE_ERROR") as caught:
        reader.load()
    line = str(caught.value).splitlines()[0]
    assert "Traceback" not in str(caught.value)
    assert f"{bare}, the Python " in line
    assert "has no module pyarrow" in line or "has no module numpy" in line
    assert "PYSPARK_PYTHON" in line


def test_error_about_missing_minikafka_names_the_python_that_lacks_it(bare, tmp_path):
    pickled = tmp_path / "class"
    pickled.write_bytes(cloudpickle.dumps(MinikafkaDataSource))
    program = f"import pickle, sys; sys.path += {ZIPS}; pickle.load(open({str(pickled)!r}, 'rb'))"
    ran = subprocess.run([bare, "-I", "-c", program], capture_output=True, text=True, check=False)
    last = ran.stderr.splitlines()[-1]
    assert f"{bare}, the Python {sys.version_info.major}." in last
    assert "has no module minikafka" in last


def test_data_source_class_is_pickled_by_name():
    assert cloudpickle.loads(cloudpickle.dumps(MinikafkaDataSource)) is MinikafkaDataSource
