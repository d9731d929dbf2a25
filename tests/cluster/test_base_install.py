"""What an installation without extras, on a machine without Java, can do: a whole cluster, and quickstart."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.commands.base_install import make_base_environment, without_java
from support.commands.script_project import make_project, processes_of


class BaseInstall:
    """An environment without extras and without Java, and a directory for a cluster."""

    def __init__(self, directory: Path) -> None:
        self.python = make_base_environment(directory / "environment", "confluent-kafka")
        self.directory = directory / "work"
        self.directory.mkdir()

    def run(self, *words: str, records: str = "") -> subprocess.CompletedProcess[str]:
        """Run `minikafka WORDS` until it ends."""
        return subprocess.run(
            [str(self.python), "-m", "minikafka", *words],
            cwd=self.directory,
            env=without_java(self.python),
            input=records,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def succeed(self, *words: str, records: str = "") -> str:
        """Run the command, which must succeed, and return its output."""
        ended = self.run(*words, records=records)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture
def base(tmp_path: Path) -> Iterator[BaseInstall]:
    made = BaseInstall(tmp_path)
    yield made
    made.run("down")


def test_cluster_runs_without_java_and_without_extras(base: BaseInstall) -> None:
    """Topics, records and a failover, with the commands that README names first."""
    base.succeed("up", "--brokers", "3", "--port", "0")
    base.succeed("topics", "create", "events", "--partitions", "2", "--replication-factor", "3")
    base.succeed("produce", "events", "--acks", "all", records="before\n")
    base.succeed("kill", "1")
    base.succeed("produce", "events", "--acks", "all", records="after\n")
    assert sorted(base.succeed("consume", "events", "--exit").split()) == ["after", "before"]
    base.succeed("start", "1")
    assert "events-0" in base.succeed("status")
    base.succeed("consume", "events", "--group", "shop", "--exit")
    assert "shop" in base.succeed("groups", "list")
    base.succeed("down")
    assert processes_of(base.directory) == []


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["up", "--zookeeper", "managed", "--port", "0"], "minikafka[zookeeper]"),
        (["pipeline", "lag", "shop", "--bootstrap", "127.0.0.1:1"], "minikafka[spark]"),
    ],
)
def test_command_that_needs_an_extra_names_it_in_one_line(
    base: BaseInstall, words: list[str], extra: str
) -> None:
    ended = base.run(*words)

    assert ended.returncode == 1
    assert f"pip install '{extra}'" in ended.stderr
    assert ended.stderr.count("\n") == 1
    assert "Traceback" not in ended.stderr


def test_quickstart_without_spark_needs_neither_java_nor_an_extra(
    base: BaseInstall, tmp_path: Path
) -> None:
    directory = tmp_path / "project"
    directory.mkdir()
    project = make_project(directory, python=str(base.python), needs="base")
    (project / "cluster.toml").write_text("[cluster]\nport = 0\n")
    path = f"{project / '.venv' / 'bin'}:{base.python.parent}"
    ended = subprocess.run(
        [str(project / "scripts" / "quickstart"), "--no-spark"],
        env=without_java(base.python, PATH=path, PYTHONPATH=str(project / "site")),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )

    assert ended.returncode == 0, ended.stderr
    assert "no acknowledged record was lost" in ended.stdout
    assert "spark" not in ended.stdout.lower()
    assert processes_of(project) == []
