"""The archives that `minikafka pipeline package` writes, and the spark-submit command that is printed."""

from __future__ import annotations

import subprocess
import sys

import pytest
from click.testing import CliRunner

from minikafka.base.errors import ConfigError
from minikafka.spark.pipelines.package import Package, write_libraries
from minikafka.tools.cli.pipeline import pipeline


def test_package_command_writes_the_archive_and_prints_how_to_submit(tmp_path):
    ran = CliRunner().invoke(pipeline, ["package", "--output", str(tmp_path / "new")])
    archive = tmp_path / "new" / "minikafka-spark.zip"
    assert ran.exit_code == 0, ran.output
    assert archive.is_file()
    assert ran.output.splitlines()[-1] == (
        f"PYTHONPATH={archive} spark-submit --master spark://HOST:7077 --py-files {archive} JOB.py"
    )


def test_error_about_an_unwritable_directory_names_it(tmp_path):
    (tmp_path / "file").touch()
    ran = CliRunner().invoke(pipeline, ["package", "--output", str(tmp_path / "file" / "new")])
    assert ran.exit_code != 0
    assert f"cannot write to {tmp_path / 'file' / 'new'}" in str(ran.exception)


def test_libraries_are_unpacked_by_each_executor(tmp_path):
    package = Package(tmp_path / "code.zip", tmp_path / "libraries.tar.gz")
    command = package.submit_command("yarn", "job.py")
    assert f"--archives {tmp_path / 'libraries.tar.gz'}#libraries" in command
    assert "spark.executorEnv.PYTHONPATH=libraries" in command


def test_packed_library_is_imported_where_it_was_unpacked(tmp_path):
    write_libraries(tmp_path / "libraries.tar.gz", ["fastcrc"])
    place = tmp_path / "unpacked"
    place.mkdir()
    subprocess.run(["tar", "-xzf", tmp_path / "libraries.tar.gz", "-C", place], check=True)
    program = "import sys; sys.path[:0] = ['unpacked']; import fastcrc; print(fastcrc.__file__)"
    command = [sys.executable, "-I", "-S", "-c", program]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.startswith(f"{place}/fastcrc/")


def test_error_about_a_missing_library_names_it(tmp_path):
    with pytest.raises(ConfigError, match="no-such-library is not installed"):
        write_libraries(tmp_path / "libraries.tar.gz", ["no-such-library"])
