"""Every benchmark runs once at a small scale, so that a change that breaks a benchmark fails a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import IO

import pytest

from benchmarks import groups, transactions

ROOT = Path(__file__).parents[2]


def run(
    *options: str, module: str = "benchmarks", environment: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    ran = subprocess.run(
        [sys.executable, "-m", module, *options],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran


def test_benchmark_has_results_of_every_load_and_ratios_to_the_minimal_log(tmp_path):
    results = tmp_path / "results.jsonl"

    ran = run("--rounds=1", "--scale=0.002", f"--json={results}")

    facts = json.loads(results.read_text())
    loads = {"end_to_end", "produce", "produce_checked", "catch_up", "lagging"}
    assert set(facts) == {"commit", "time", "machine", *loads}
    scenarios = [row["scenario"] for row in facts["produce"]]
    assert [row["scenario"] for row in facts["produce_checked"]] == scenarios
    assert facts["machine"] in ran.stdout
    compared = [row for row in facts["produce"] if "ratio" in row]
    assert {"259 B, 64 in flight", "16 KiB, 32 in flight"} <= {row["scenario"] for row in compared}
    assert all(row["ratio"] > 0 and row["p50_ms"] <= row["p99_ms"] for row in compared)
    assert sum(row["bytes"] for row in facts["catch_up"]) > 0
    assert facts["lagging"]["bytes"] > 0
    assert facts["lagging"]["ratio"] > 0


def test_catch_up_benchmark_produces_the_records_that_it_reads(tmp_path):
    results = tmp_path / "results.jsonl"
    options = ["--only=catch-up", "--scale=0.01", f"--json={results}"]

    run(*options)

    facts = json.loads(results.read_text())
    assert facts["produce"] == []
    assert [row["partitions"] for row in facts["catch_up"]] == [1, 6]
    assert all(row["bytes"] > 1_000_000 for row in facts["catch_up"])


def test_cleaner_benchmark_measures_cleaning_speed_and_producing_during_cleaning():
    options = ["--records=3200", "--rounds=1", "--seconds=0.3"]

    ran = run(*options, module="benchmarks.cleaner")

    *loads, produce = ran.stdout.splitlines()[1:]
    assert len(loads) == 5
    assert all(" MB/s" in line for line in loads)
    assert "during a cleaning" in produce


def test_group_benchmark_measures_every_scenario(tmp_path):
    results = tmp_path / "results.jsonl"
    options = ["--rounds=1", "--scale=0.005", f"--json={results}"]

    run(*options, module="benchmarks.groups", environment={"MINIKAFKA_KAFKA_JARS": ""})

    (figures,) = json.loads(results.read_text())["groups"].values()
    assert set(figures) == {row.name for row in groups.ROWS}
    processor = {groups.QUIET.name, groups.IDLE.name}  # 0 if the measured time is short
    assert all(figures[name][0] > 0 for name in set(figures) - processor)


def test_transaction_benchmark_measures_every_scenario_and_prints_a_table(tmp_path):
    results = tmp_path / "results.jsonl"
    options = ["--rounds=1", "--scale=0.05", f"--json={results}"]

    ran = run(*options, module="benchmarks.transactions", environment={"MINIKAFKA_KAFKA_JARS": ""})

    (figures,) = json.loads(results.read_text())["transactions"].values()
    assert set(figures) == {row.name for row in transactions.ROWS}
    assert all(values[0] > 0 for values in figures.values())
    rows = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + len(transactions.ROWS)


def test_attack_benchmark_measures_memory_and_another_client_and_prints_tables(tmp_path):
    results = tmp_path / "results.jsonl"
    options = ["--only=Metadata", "--scale=0.05", f"--json={results}"]

    ran = run(*options, module="benchmarks.attacks")

    figures = json.loads(results.read_text())["attacks"]
    (unread,), (read,) = figures["nothing_received"].values(), figures["all_received"].values()
    (burst,) = figures["bursts"].values()
    for row in (unread, read):
        assert row["peak_mb"] >= row["before_mb"] > 0
        assert row["longest_ms"] >= row["p99_ms"] >= row["p50_ms"] > 0
        assert row["sent"] > 0
    assert unread["received"] == 0 < read["received"]
    assert burst["peak_mb"] > burst["before_mb"]
    rows = [line for line in ran.stdout.splitlines() if line.startswith("|")]
    assert len(rows) == (2 + 2) + (2 + 1)


def test_attacks_of_clients_without_a_login_stay_within_their_limits(tmp_path):
    results = tmp_path / "results.jsonl"
    options = ["--only=TLS", "--scale=0.02", f"--json={results}"]

    ran = run(*options, module="benchmarks.attack_logins")

    rows = json.loads(results.read_text())["attack_logins"]
    assert set(rows) == {"half of a TLS handshake", "no TLS", "a login byte by byte after TLS"}
    assert all(row["connections"] == 40 and max(row["waits_s"]) > 0 for row in rows.values())
    assert rows["no TLS"]["closed"] >= 40
    assert ran.stdout.count("another client was served within") == 3


def test_zookeeper_benchmark_compares_every_load_with_apache_zookeeper(tmp_path):
    results = tmp_path / "results.jsonl"

    ran = run("--rounds=1", "--scale=0.01", f"--json={results}", module="benchmarks.zookeeper")

    rows = json.loads(results.read_text())["zookeeper"]
    loads = {f"{kind}, {count} in flight" for kind in ("set", "get") for count in (1, 64, 256)}
    assert loads | {"start to first session", "resident memory, empty"} <= set(rows)
    for row in rows.values():
        ours, apache = row["minikafka zookeeper"], row["Apache ZooKeeper"]
        assert len(ours) == len(apache) == 1
        assert min(*ours, *apache, row["ratio"]) > 0
    assert all(f"| {name} |" in ran.stdout for name in loads)


def test_spark_benchmark_measures_the_decoder_for_every_codec(tmp_path):
    results = tmp_path / "results.jsonl"
    options = ["--only=decoder", "--rounds=1", "--scale=0.005", f"--json={results}"]

    run(*options, module="benchmarks.spark_rates")

    figures = json.loads(results.read_text())["spark"]
    assert len(figures) == 8
    readers = {"minikafka", "confluent-kafka", "decompression alone"}
    for uncompressed in ("none, 1,000 a batch", "none, 1 a batch"):
        assert figures.pop(uncompressed).keys() == readers - {"decompression alone"}
    assert all(rates.keys() == readers for rates in figures.values())


def test_controller_benchmark_measures_every_scenario(tmp_path):
    results = tmp_path / "results.jsonl"
    command = ["controller", "--rounds=1", "--scale=0.002", f"--json={results}"]

    ran = run(*command)

    facts = json.loads(results.read_text())
    assert set(facts) == {"commit", "time", "machine", "controller"}
    load, relieve, *real = facts["controller"]
    assert (load["partitions"], relieve["partitions"]) == (200, 100)
    for row in (load, relieve):
        assert row["rpcs"] > 0
        assert row["zookeeper_requests"] > row["zookeeper_multis"] > 0
        assert row["peak_memory_mb"] > 0
    assert [row["what"] for row in real] == [
        "real brokers: create 3 x 3",
        f"real brokers: stop a broker, {real[1]['leaders']} of 3 move",
        "real brokers: create 6 x 3",
        f"real brokers: stop a broker, {real[3]['leaders']} of 6 move",
    ]
    assert all(row["what"] in ran.stdout for row in real)


def processes_in(directory: Path) -> list[str]:
    """Return the command lines of the processes that use the directory.

    The command line, the environment or the working directory of such a process contains the directory's path.
    """
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_text().replace("\0", " ")
            texts = [words, os.readlink(process / "cwd"), (process / "environ").read_text()]
            found += [words] * any(str(directory) in text for text in texts)
    return found


def wait_for_line(lines: IO[str], begun: str) -> None:
    """Read lines until one has the text `begun`."""
    for line in lines:
        if begun in line or (begun == "machine" and "in flight" not in line):
            break


def wait_for_log(directory: Path, benchmark: subprocess.Popen[str]) -> None:
    """Wait until a log in the directory has records. The benchmark prints nothing before its first rounds end."""
    while benchmark.poll() is None and not any(
        log.stat().st_size for log in directory.rglob("*.log")
    ):
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("arguments", "begun"),
    [
        (["benchmarks", "--scale=0.02"], "end to end"),
        (["benchmarks", "--scale=0.2", "--only=16 KiB"], "machine"),
        (["benchmarks", "controller", "--scale=0.005"], "failover"),
        (["benchmarks.cleaner", "--records=10000"], "100 updates"),
        (["benchmarks.bench_log", "2000000"], None),
    ],
)
def test_ended_benchmark_leaves_no_process_and_no_file(tmp_path, arguments, begun):
    command = [sys.executable, "-m", *arguments]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as ran:
        assert ran.stdout is not None
        assert ran.stderr is not None
        if begun is None:
            wait_for_log(tmp_path, ran)
        else:
            wait_for_line(ran.stdout, begun)
        assert list(tmp_path.iterdir())
        ran.send_signal(signal.SIGTERM)
        ran.wait(60)
        assert (ran.returncode, ran.stderr.read()) == (128 + signal.SIGTERM, "ended by SIGTERM\n")
    assert list(tmp_path.iterdir()) == []
    assert processes_in(tmp_path) == []
