"""A short run of `scripts/chaos --transactions` in both coordination modes; longer runs are the script itself."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.commands.script_project import make_project, processes_of, start

from minikafka.base.coordination import CONTROLLER, LEADERS


@pytest.mark.parametrize(
    ("mode", "seconds", "seed"), [(CONTROLLER, "7", "39"), (LEADERS, "4", "7")]
)
def test_topic_is_copied_exactly_once_while_brokers_and_jobs_die(
    tmp_path: Path, mode: str, seconds: str, seed: str
) -> None:
    project = make_project(tmp_path)
    words = ["--transactions", "--jobs", "2", "--coordination", mode]
    command = [str(project / "scripts" / "chaos"), *words, "--seconds", seconds, "--seed", seed]
    running = start(command, project)
    printed = running.communicate(timeout=240)[0].decode()
    sys.stdout.write(printed)
    assert running.returncode == 0
    assert "records were copied exactly once, in order" in printed
    assert "no anomaly" in printed
    assert "Traceback" not in printed
    assert processes_of(project) == []
