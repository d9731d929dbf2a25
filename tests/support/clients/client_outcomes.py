"""The recorded outcomes of the client matrix: written by `pytest --record-rows`, read by write_docs.py.

A recorded run replaces the outcomes of the tests that ran and keeps the outcomes of other tests.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest

FILE: Final = Path(__file__).resolve().parents[2] / "clients" / "outcomes.json"
MATRIX: Final = "tests/clients/test_matrix.py::"


def read(file: Path = FILE) -> dict[str, dict[str, str]]:
    """Return, by test name, each client's outcome: "passed", "failed", or the reason why it was skipped."""
    found: dict[str, dict[str, str]] = json.loads(file.read_text()) if file.exists() else {}
    return found


class MatrixOutcomes:
    """A pytest plugin that records the outcomes of tests/clients/test_matrix.py if `--record-rows` is given."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._found: dict[str, dict[str, str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if not report.nodeid.startswith(MATRIX) or (report.passed and report.when != "call"):
            return
        test, _, client = report.nodeid.removeprefix(MATRIX).rstrip("]").partition("[")
        outcome: str = report.outcome
        if report.skipped:
            assert isinstance(report.longrepr, tuple)
            outcome = report.longrepr[2].removeprefix("Skipped: ")
        self._found.setdefault(test, {})[client] = outcome

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        is_worker = hasattr(session.config, "workerinput")
        if not is_worker and self._found and session.config.getoption("--record-rows"):
            merged = read(self._file)
            for test, outcomes in self._found.items():
                merged[test] = {**merged.get(test, {}), **outcomes}
            self._file.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n")
