"""Output of a run: a line about the machine, a table, and a line of JSON."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.closed_loop import Result
from benchmarks.load_produce import Measured

ROOT = Path(__file__).resolve().parent.parent


def machine() -> str:
    """Return a line with the processor, cores, memory, kernel, Python build and load of this machine."""
    names = [
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = f"{platform.python_implementation()} {platform.python_version()} {_build()}"
    cores = len(os.sched_getaffinity(0))
    load = os.getloadavg()[0]
    name = names[0] if names else platform.machine()
    return (
        f"{name}, {cores} cores, {gigabytes:.0f} GiB, Linux {platform.release()}, {python}, "
        f"load {load:.1f} before the run"
    )


def _build() -> str:
    """Return "with PGO" or "without PGO", depending on the build of this Python interpreter.

    `scripts/environment` uses the same rule.
    """
    options = sysconfig.get_config_var("CONFIG_ARGS") or ""
    is_optimized = sys.base_prefix == "/usr" or "--enable-optimizations" in options
    return "with PGO" if is_optimized else "without PGO"


def commit() -> str:
    """Return the current git commit, with + if there are uncommitted changes; "" outside of a repository."""
    command = ["git", "describe", "--always", "--dirty=+", "--exclude=*"]
    described = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return described.stdout.strip()


def produce_row(measured: Measured) -> str:
    """Return the table row of one scenario: the figures of its median round and of the floor's median round."""
    result = _median(measured.results)
    row = f"{measured.scenario.name:36} {_figures(result)}"
    if measured.ratio is None:
        return row
    floor = _median(measured.floors)
    return f"{row}   {floor.rate:9,.0f} {floor.percentile_ms(0.5):7.3f}   {measured.ratio:5.2f}"


def produce_head() -> str:
    """Return the header of the table of produce loads."""
    figures = f"{'req/s':>9} {'MB/s':>6} {'p50 ms':>7} {'p99':>7} {'p99.9':>7}"
    return f"{'produce, acks=all, 3 replicas':36} {figures}   {'floor/s':>9} {'p50':>7}   ratio"


def produce_facts(measured: Measured) -> dict[str, Any]:
    """Return the figures of one scenario as values for JSON."""
    result = _median(measured.results)
    facts: dict[str, Any] = {
        "scenario": measured.scenario.name,
        "requests_per_second": [round(item.rate) for item in measured.results],
        "p50_ms": round(result.percentile_ms(0.5), 4),
        "p99_ms": round(result.percentile_ms(0.99), 4),
        "p999_ms": round(result.percentile_ms(0.999), 4),
    }
    if measured.ratio is not None:
        facts["floor_requests_per_second"] = [round(item.rate) for item in measured.floors]
        facts["ratio"] = round(measured.ratio, 3)
    return facts


def append(path: Path, facts: dict[str, Any]) -> None:
    """Append `facts`, with the commit and the time, as one line of JSON to the results file."""
    stamped = {"commit": commit(), "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
    with path.open("a") as file:
        file.write(json.dumps(stamped | facts) + "\n")


def _figures(result: Result) -> str:
    latencies = " ".join(f"{result.percentile_ms(share):7.3f}" for share in (0.5, 0.99, 0.999))
    return f"{result.rate:9,.0f} {result.megabytes_per_second:6,.0f} {latencies}"


def _median(results: Sequence[Result]) -> Result:
    return sorted(results, key=lambda item: item.rate)[len(results) // 2]
