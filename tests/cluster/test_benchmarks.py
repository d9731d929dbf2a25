"""Every benchmark runs once at a small scale, so that a change that breaks one is noticed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run(*options: str) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks", *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran


def test_benchmarks_compare_the_cluster_with_the_floor(tmp_path):
    results = tmp_path / "results.jsonl"

    ran = run("--rounds=1", "--scale=0.01", f"--json={results}")

    facts = json.loads(results.read_text())
    assert set(facts) == {"commit", "time", "machine", "end_to_end", "produce", "catch_up"}
    assert facts["machine"] in ran.stdout
    compared = [row for row in facts["produce"] if "ratio" in row]
    assert {"259 B, 64 in flight", "16 KiB, 32 in flight"} <= {row["scenario"] for row in compared}
    assert all(row["ratio"] > 0 and row["p50_ms"] <= row["p99_ms"] for row in compared)
    assert sum(row["bytes"] for row in facts["catch_up"]) > 0


def test_catch_up_benchmark_produces_the_records_that_it_reads(tmp_path):
    results = tmp_path / "results.jsonl"
    options = ["--only=catch-up", "--scale=0.01", f"--json={results}"]

    run(*options)

    facts = json.loads(results.read_text())
    assert facts["produce"] == []
    assert [row["partitions"] for row in facts["catch_up"]] == [1, 6]
    assert all(row["bytes"] > 1_000_000 for row in facts["catch_up"])


def test_controller_benchmark_measures_every_scenario(tmp_path):
    results = tmp_path / "results.jsonl"
    command = ["controller", "--rounds=1", "--scale=0.005", f"--json={results}"]

    ran = run(*command)

    facts = json.loads(results.read_text())
    assert set(facts) == {"commit", "time", "machine", "controller"}
    load, relieve, *real = facts["controller"]
    assert (load["partitions"], relieve["partitions"]) == (500, 250)
    for row in (load, relieve):
        assert row["rpcs"] > 0
        assert row["zookeeper_requests"] > row["zookeeper_multis"] > 0
        assert row["peak_memory_mb"] > 0
    assert [row["what"] for row in real] == [
        "real brokers: create 5 x 3",
        f"real brokers: stop a broker, {real[1]['leaders']} of 5 move",
        "real brokers: create 15 x 3",
        f"real brokers: stop a broker, {real[3]['leaders']} of 15 move",
    ]
    assert all(row["what"] in ran.stdout for row in real)
