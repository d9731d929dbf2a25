"""The benchmark against Apache Kafka fills every row of its results.

Without Kafka's jars, the benchmark's error names the environment variable to set.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
VARIABLE = "MINIKAFKA_KAFKA_JARS"


def compare(
    *arguments: str, jars: str, module: str = "benchmarks.peer"
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, VARIABLE: jars},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("jars", ["", "nowhere"])
def test_benchmark_against_kafka_without_jars_names_the_missing_variable(jars: str) -> None:
    ran = compare(jars=jars)
    assert ran.returncode == 1
    assert ran.stderr.count("\n") == 1
    assert f"{VARIABLE} must name a directory" in ran.stderr


@pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} names no directory of jars")
def test_benchmark_against_kafka_has_seven_measurements_of_each_cluster(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    ran = compare("--rounds=1", "--scale=0.02", f"--json={results}", jars=os.environ[VARIABLE])
    assert ran.returncode == 0, ran.stderr
    peer = json.loads(results.read_text())["peer"]
    assert set(peer) == {"minikafka", "Apache Kafka"}
    for rows in peer.values():
        assert len(rows) == 7
        assert all(value > 0 for values in rows.values() for value in values)


@pytest.mark.skipif(not os.environ.get(VARIABLE), reason=f"{VARIABLE} names no directory of jars")
def test_benchmark_against_kafka_measures_the_same_loads_with_a_login_under_tls(
    tmp_path: Path,
) -> None:
    results = tmp_path / "results.jsonl"
    options = ("--rounds=1", "--scale=0.02", "--only=SASL_SSL", f"--json={results}")
    ran = compare(*options, jars=os.environ[VARIABLE], module="benchmarks.secured_peer")
    assert ran.returncode == 0, ran.stderr
    [figures] = json.loads(results.read_text())["secured_peer"].values()
    assert set(figures) == {"minikafka", "Apache Kafka"}
    for loads in figures.values():
        assert set(loads) == {"produce", "fetch"}
        assert all(load["batches_per_second"][0] > 0 for load in loads.values())
