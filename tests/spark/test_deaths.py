"""A short run of scripts/spark-deaths, started as users start it. Longer runs are started by hand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.rows import proof

SCRIPT = Path(__file__).parents[2] / "scripts" / "spark_deaths_job.py"


@pytest.mark.row("N7")
@pytest.mark.timeout(600)
def test_streams_survive_a_killed_driver_and_a_killed_broker(tmp_path):
    proof.note(proof.Level.REAL)
    command = [sys.executable, str(SCRIPT), "--faults", "2", "--seed", "9407"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=580, cwd=tmp_path)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "kill the driver after EndTxn, before the commit log" in ended.stdout
    assert "kill broker" in ended.stdout
    assert "check: no anomaly" in ended.stdout
    assert "the Parquet table holds every record exactly once" in ended.stdout
    assert "deaths-once holds every record exactly once and in order" in ended.stdout
    assert "the copied topic holds every record" in ended.stdout
    assert list(tmp_path.iterdir()) == []
