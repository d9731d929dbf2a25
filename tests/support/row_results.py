"""The recorded outcomes of the tests that claim rows of docs/conformance.md.

`pytest --record-rows` writes the outcomes, and write_docs.py reads them. The file with the outcomes is committed, so
that docs/conformance.md can be generated without a test run. A recorded run replaces the outcomes of the tests that
ran, keeps the outcomes of other tests, and removes tests that no longer claim a row.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from support.proof import Level

FILE = Path(__file__).resolve().parent.parent / "conformance" / "outcomes.json"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"


@dataclass(frozen=True)
class Result:
    """The outcome of one test over all its parameters, and the level of the test: table, memory or real."""

    outcome: str
    level: Level

    def __str__(self) -> str:
        return f"{self.outcome} {self.level.label}"


def read(file: Path = FILE) -> dict[str, Result]:
    """Return the recorded result of each test by node id without parameters; {} if there is no file."""
    if not file.exists():
        return {}
    recorded = json.loads(file.read_text())
    return {test: _parse(text) for test, text in recorded["tests"].items()}


def recorded_on(file: Path = FILE) -> str:
    """Return the date of the last recorded run, "" if there was none."""
    return json.loads(file.read_text())["last_run"] if file.exists() else ""


def record(
    results: Mapping[str, Result], claiming: Collection[str], today: str, file: Path = FILE
) -> None:
    """Merge the results of today's run into the file.

    `claiming`: the tests that claim to prove a row of docs/conformance.md. All other tests are removed from the file.
    """
    merged = {**read(file), **results}
    kept = {test: str(merged[test]) for test in sorted(merged) if test in claiming}
    file.write_text(json.dumps({"last_run": today, "tests": kept}, indent=1) + "\n")


def _parse(text: str) -> Result:
    outcome, level = text.split()
    return Result(outcome, Level[level.upper()])
