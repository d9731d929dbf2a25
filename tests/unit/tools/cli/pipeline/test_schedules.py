"""The examples of schedules: locks and exit codes of the script, the units of systemd, and the DAG of Airflow."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from minikafka.spark.pipelines.run.definition import Overrides, parse
from minikafka.tools.cli.pipeline import pipeline
from minikafka.tools.cli.pipeline.launch import Launch

EXAMPLES = Path(__file__).parents[5] / "examples" / "schedule"


@pytest.fixture
def script(tmp_path: Path):
    """Return a function that starts the script for FILE.toml; the pipeline is a program with this body."""
    shutil.copy(EXAMPLES / "run-pipeline", tmp_path)

    def start(body: str) -> subprocess.Popen[bytes]:
        program = tmp_path / "pipeline"
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        return subprocess.Popen(
            ["./run-pipeline", "a.toml"],
            cwd=tmp_path,
            env={**os.environ, "MINIKAFKA": str(program)},
        )

    return start


@pytest.mark.parametrize("code", [0, 1, 3])
def test_script_keeps_the_exit_code_and_appends_the_summary(script, tmp_path, code):
    for _ in range(2):
        body = f'echo "{{\\"ok\\": true, \\"words\\": \\"$*\\"}}"; exit {code}'
        assert script(body).wait(30) == code
    lines = (tmp_path / "a.toml.runs").read_text().splitlines()
    assert [json.loads(line)["words"] for line in lines] == [
        "pipeline run a.toml --json --quiet"
    ] * 2


def test_script_ends_with_75_while_another_run_holds_the_lock(script, tmp_path):
    os.mkfifo(tmp_path / "go")
    first = script("echo running; read word < go")
    with (tmp_path / "go").open("w") as go:  # opens when the first run reads
        assert script("echo second").wait(30) == 75
        go.write("on\n")
    assert first.wait(30) == 0
    assert script("echo third").wait(30) == 0
    assert (tmp_path / "a.toml.runs").read_text() == "running\nthird\n"


def test_script_passes_sigterm_on_and_waits_for_the_summary(script, tmp_path):
    os.mkfifo(tmp_path / "ready")
    run = script("trap 'echo stopped; exit 130' TERM; echo > ready; while :; do sleep 0.1; done")
    (tmp_path / "ready").read_text()
    run.terminate()
    assert run.wait(30) == 130
    assert (tmp_path / "a.toml.runs").read_text() == "stopped\n"


def test_script_ends_with_75_while_the_pipeline_of_a_killed_run_goes_on(script, tmp_path):
    for name in ("ready", "go"):
        os.mkfifo(tmp_path / name)
    killed = script("echo > ready; read word < go; echo > ready")
    (tmp_path / "ready").read_text()
    killed.kill()
    killed.wait(30)
    with (tmp_path / "go").open("w") as go:
        assert script("echo second").wait(30) == 75
        go.write("on\n")
    (tmp_path / "ready").read_text()


def test_pipeline_of_the_examples_is_valid():
    file = EXAMPLES / "clicks.toml"
    definition = parse(file.read_text(), str(file), Overrides(lambda: "127.0.0.1:9092"))
    assert definition.sources[0].options["commitOffsetsToGroup"] == "clicks-per-user"


@pytest.mark.parametrize("name", ["crontab", "clicks.service", "clicks_dag.py"])
def test_scheduler_runs_minikafka_with_the_address_of_the_brokers(tmp_path, monkeypatch, name):
    program = tmp_path / ".venv" / "bin" / "minikafka"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$*"\n')
    program.chmod(0o755)
    for file in ("run-pipeline", "clicks.toml"):
        shutil.copy(EXAMPLES / file, tmp_path)
    (tmp_path / "client.properties").write_text("security.protocol=PLAINTEXT\n")
    text = (EXAMPLES / name).read_text().replace("/srv/clicks", str(tmp_path))
    text = text.replace("{PLACE}", str(tmp_path))
    command = re.search(r"run-pipeline (clicks\.toml.* client\.properties)", text)
    path = re.search(r'PATH"?[=:][ f"]*([^\n"]+)', text)
    assert command is not None
    assert path is not None
    ran = ["sh", "-c", f"./{command[0]}"]
    subprocess.run(ran, cwd=tmp_path, env={"PATH": path[1]}, check=True)
    words = (tmp_path / "clicks.toml.runs").read_text().split()
    servers: list[str] = []
    monkeypatch.setattr(Launch, "run", lambda *_, brokers, **__: servers.extend(brokers))
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(pipeline, words[1:])
    assert (ended.exit_code, servers) == (0, ["kafka-1:9092"]), ended.output


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_units_of_systemd_are_valid(tmp_path):
    shutil.copy(EXAMPLES / "run-pipeline", tmp_path)
    for name in ("clicks.service", "clicks.timer"):
        text = (EXAMPLES / name).read_text().replace("/srv/clicks", str(tmp_path))
        (tmp_path / name).write_text(text.replace("User=clicks\n", ""))
    units = [tmp_path / "clicks.service", tmp_path / "clicks.timer"]
    ended = subprocess.run(
        ["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False
    )
    about = [line for line in ended.stderr.splitlines() if "clicks." in line]
    assert (ended.returncode, about) == (0, [])


@pytest.mark.skipif(importlib.util.find_spec("airflow") is None, reason="Airflow is not installed")
def test_dag_of_airflow_has_the_run_before_the_check():
    found = runpy.run_path(str(EXAMPLES / "clicks_dag.py"))["clicks_per_user"]()
    assert [task.task_id for task in found.topological_sort()] == ["run", "check"]
