"""Plants bugs that break a safety rule, one at a time, and runs the tests that must find them.

`plants.toml` lists the bugs: each replaces a text that occurs exactly once in a file of `minikafka`, and names the
tests of which at least one must then fail. The bugs are planted in temporary copies of the repository, one copy for
each process that runs tests, so the working tree never changes. Ends with 1 if a bug survives its tests, or can no
longer be planted.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
COPIED = ("minikafka", "tests", "benchmarks", "scripts", "docs", "pyproject.toml")
TEST_TIMEOUT_S = 30
RUN_TIMEOUT_S = 300
"""Tests that run for longer have found the bug, which lets them wait for ever."""
FOUND, SURVIVED, LOST = "found", "SURVIVED", "CANNOT BE PLANTED"
NO_END = "a test that did not end"


@dataclass(frozen=True)
class Plant:
    """One bug. `rules`: the ids of the rules that it breaks. `file`: relative to `minikafka`."""

    rules: tuple[str, ...]
    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def applies(self, root: Path) -> bool:
        """True if the text to replace occurs exactly once in the file."""
        file = root / "minikafka" / self.file
        return file.exists() and file.read_text().count(self.old) == 1


@dataclass(frozen=True)
class Outcome:
    """The result of one plant. `found_by`: the test that failed first, `NO_END`, or "" if none did."""

    plant: Plant
    result: str
    found_by: str = ""


def read_plants() -> list[Plant]:
    """Return the bugs of `plants.toml`."""
    listed = tomllib.loads(Path(__file__).with_name("plants.toml").read_text())["plant"]
    return [
        Plant(**{**one, "rules": tuple(one["rules"]), "tests": tuple(one["tests"])})
        for one in listed
    ]


def copy_tree(target: Path) -> Path:
    """Copy the code and the tests to a new directory; return the directory."""
    target.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, target / name, ignore=shutil.ignore_patterns("__pycache__", "outcomes.json")
            )
        else:
            shutil.copy2(source, target)
    return target


def try_plant(plant: Plant, copy: Path) -> Outcome:
    """Plant one bug in the copy, run its tests, and restore the copy."""
    if not plant.applies(copy):
        return Outcome(plant, LOST)
    file = copy / "minikafka" / plant.file
    before = file.read_text()
    _write(file, before.replace(plant.old, plant.new))
    try:
        done = _run(plant.tests, copy)
    finally:
        _write(file, before)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{plant.what}: pytest failed:\n{done.stdout}{done.stderr}")
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    # A failed test also fails the rows of docs/conformance.md that it proves.
    tests = [line.split(" ", 1)[1].split(" - ")[0] for line in failed if "rows.toml" not in line]
    if not done.returncode:
        return Outcome(plant, SURVIVED)
    return Outcome(plant, FOUND, tests[0] if tests else NO_END)


def _write(file: Path, text: str) -> None:
    """Write a module and remove its bytecode, which stays valid if size and second of the new file are the same."""
    file.write_text(text)
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


def check_tests(plants: list[Plant], copy: Path) -> None:
    """Run the tests of all plants without a bug. Raises SystemExit if one fails: it would seem to find every bug."""
    tests = {test for plant in plants for test in plant.tests}
    done = _run(sorted(tests), copy)
    if done.returncode:
        raise SystemExit(f"tests fail without a planted bug:\n{done.stdout}{done.stderr}")


def _run(tests: Iterable[str], copy: Path) -> subprocess.CompletedProcess[str]:
    options = [
        "-q",
        "-x",
        "--tb=no",
        "-rfE",
        "-p",
        "no:cacheprovider",
        f"--timeout={TEST_TIMEOUT_S}",
        # The default, an exception in whatever code runs, is lost if this is a task of the event loop.
        "--timeout-method=thread",
    ]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        return subprocess.run(
            command,
            cwd=copy,
            capture_output=True,
            text=True,
            check=False,
            timeout=RUN_TIMEOUT_S,
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, f"no end within {RUN_TIMEOUT_S} s\n", "")


def outcomes(plants: list[Plant], parallel: int) -> Iterator[Outcome]:
    """Try all plants in `parallel` copies of the repository, and yield their outcomes in order."""
    with TemporaryDirectory(prefix="minikafka-planted-") as directory:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(parallel):
            copies.put(copy_tree(Path(directory) / str(number)))

        check_tests([plant for plant in plants if plant.applies(ROOT)], Path(directory) / "0")

        def work(plant: Plant) -> Outcome:
            copy = copies.get()
            try:
                return try_plant(plant, copy)
            finally:
                copies.put(copy)

        executor = ThreadPoolExecutor(parallel)
        try:
            yield from executor.map(work, plants)
        finally:
            executor.shutdown(cancel_futures=True)


def main() -> int:
    """Plant the chosen bugs, print the outcomes, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "rules", nargs="*", help="only bugs that break these rules, for example S29 R27"
    )
    parser.add_argument(
        "--parallel", type=int, default=2, help="test runs at the same time (default: 2)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per bug")
    options = parser.parse_args()
    wanted = set(options.rules)
    plants = [one for one in read_plants() if not wanted or wanted.intersection(one.rules)]
    bad = 0
    for outcome in outcomes(plants, options.parallel):
        bad += outcome.result != FOUND
        print(_as_json(outcome) if options.json else _as_row(outcome), flush=True)
    if not options.json:
        print(f"{len(plants)} bugs, {len(plants) - bad} found, {bad} not")
    return 1 if bad else 0


def _as_row(outcome: Outcome) -> str:
    plant = outcome.plant
    result = f"{outcome.result} {outcome.found_by}".strip()
    return f"{' '.join(plant.rules):12} {plant.what}\n{'':12} {result}"


def _as_json(outcome: Outcome) -> str:
    plant = outcome.plant
    fields = {"rules": plant.rules, "what": plant.what, "file": plant.file}
    return json.dumps({**fields, "result": outcome.result, "found_by": outcome.found_by})


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
