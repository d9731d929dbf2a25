"""The recorded outcomes of the tests that claim rows of docs/conformance.md.

`pytest --record-rows` writes the outcomes, and write_docs.py reads them. The file with the outcomes is committed, so
that docs/conformance.md can be generated without a test run. A recorded run replaces the outcomes of the tests that
ran, keeps the outcomes of other tests, and removes tests that no longer claim a row.

The level and the modes are known only when a test runs. The rows of a test are not in the file, because the source has
them. The file has one test a line and no date, so a line changes only when its test does.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from support.rows.proof import CONTROLLER, MODES, Level

FILE = Path(__file__).resolve().parents[2] / "conformance" / "outcomes.json"
PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
_USUAL_MODES = (CONTROLLER,)
"""The modes of a test with a cluster that are not written to the file."""


@dataclass(frozen=True)
class Result:
    """The outcome of one test over all its parameters, its level (table, memory or real), and its modes.

    `modes`: the coordination modes of the clusters that the test used; none if it used no cluster.
    """

    outcome: str
    level: Level
    modes: tuple[str, ...] = ()

    def __str__(self) -> str:
        modes = "" if self.modes == _USUAL_MODES else "+".join(self.modes)
        return " ".join(filter(None, (self.outcome, self.level.label, modes)))

    def shows(self, test: str, mode: str) -> bool:
        """True if the test says something about the mode.

        A test without a cluster shows what its parts of the broker do in both modes, unless a folder in its path
        names a mode.
        """
        folders = test.split("::")[0].split("/")
        named = self.modes or tuple(mode for mode in MODES if mode in folders)
        return mode in (named or MODES)


def read(file: Path = FILE) -> dict[str, Result]:
    """Return the recorded result of each test by node id without parameters; {} if there is no file."""
    if not file.exists():
        return {}
    recorded = json.loads(file.read_text())
    return {test: _parse(text) for test, text in recorded["tests"].items()}


def record(results: Mapping[str, Result], claiming: Collection[str], file: Path = FILE) -> None:
    """Merge the results of a run into the file.

    `claiming`: the tests that claim to prove a row of docs/conformance.md. All other tests are removed from the file.
    """
    merged = {**read(file), **results}
    kept = {test: str(merged[test]) for test in sorted(merged) if test in claiming}
    file.write_text(json.dumps({"tests": kept}, indent=1) + "\n")


def _parse(text: str) -> Result:
    outcome, label, *modes = text.split()
    level = Level[label.upper()]
    usual = _USUAL_MODES if level > Level.TABLE else ()
    return Result(outcome, level, tuple(modes[0].split("+")) if modes else usual)
