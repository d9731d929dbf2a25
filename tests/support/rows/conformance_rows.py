"""The rows of the conformance table, the tests that claim the rows, and the outcomes of these tests.

Claims are read twice: from the source of all tests (docs/conformance.md is written from these claims), and from the
marks of the collected tests. A run fails if all tests of a row ran and none of them passed. With `--record-rows`, the
outcomes are written to a file from which docs/conformance.md takes the status of each row.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest
from support.deciders.transcripts import rows_of
from support.rows import proof, row_results
from support.rows.proof import Level
from support.rows.row_results import FAILED, PASSED, SKIPPED, Result
from support.source_files import files_below, text_of, tree_of

TESTS = Path(__file__).resolve().parents[2]
SCENARIOS = "transcripts"
MARK = "pytest.mark.row"
_LEVEL = "level of the proof"
_MODES = "modes of the proof"


@dataclass(frozen=True)
class Row:
    """One row of the conformance table: a requirement, in the words of the description that it comes from.

    `modes`: the coordination modes in which it holds.
    `later`: mode -> the reason why no test proves the row in this mode yet.
    `partly`: the part that is not met as described, and why; "" if there is none.
    `otherwise`: what the project does instead of the requirement, and why; "" if it does what is described.
    """

    id: str
    group: str
    what: str
    modes: tuple[str, ...] = (proof.CONTROLLER,)
    later: Mapping[str, str] = field(default_factory=dict)
    partly: str = ""
    otherwise: str = ""

    @property
    def modes_in_scope(self) -> tuple[str, ...]:
        """The modes in which a test must prove the row."""
        return tuple(mode for mode in self.modes if mode not in self.later)


@cache
def catalogue() -> dict[str, Row]:
    """Return all rows of the table by row id, in the order of the table."""
    table = tomllib.loads((TESTS / "conformance" / "rows.toml").read_text())
    later: dict[str, dict[str, str]] = {}
    for entry in table["later"]:
        for row in entry["rows"]:
            for mode in entry.get("modes", proof.MODES):
                later.setdefault(row, {})[mode] = entry["reason"]
    modes = dict.fromkeys(table["modes"]["both"], proof.MODES)
    modes |= dict.fromkeys(table["modes"]["leaders"], (proof.LEADERS,))
    partly, otherwise = table["partly"], table["decided-otherwise"]
    rows: dict[str, Row] = {}
    for group in table["group"]:
        for row, what in group["rows"].items():
            assert row not in rows, f"row {row} is listed twice"
            rows[row] = Row(
                row,
                group["title"],
                what,
                modes.get(row, (proof.CONTROLLER,)),
                later.get(row, {}),
                partly.get(row, ""),
                otherwise.get(row, ""),
            )
    assert {*later, *modes, *partly, *otherwise} <= set(rows)
    assert not partly.keys() & otherwise.keys(), "a row is marked twice"
    return rows


@cache
def claims() -> dict[str, tuple[str, ...]]:
    """Return the node ids of the tests that claim a row (say that they prove the requirement), by row id.

    The claims are read from the source. The node ids are in order of path and line. The id of a scenario is the path of
    its transcript.
    """
    found: dict[str, list[str]] = {}
    for path in files_below(TESTS):
        if not path.name.startswith("test_") or MARK not in text_of(path):
            continue
        module = path.relative_to(TESTS.parent).as_posix()
        for test, rows in claims_in(tree_of(path)):
            for row in rows:
                found.setdefault(row, []).append(f"{module}::{test}")
    for name in sorted(_transcripts_with_rows()):
        for row in rows_of(TESTS.parent / name):
            found.setdefault(row, []).append(name)
    return {row: tuple(dict.fromkeys(tests)) for row, tests in found.items()}


def claims_in(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Yield (test name, row ids) for each test of a module. Marks of the module and of test classes count, too."""
    everywhere = [
        row
        for node in module.body
        if isinstance(node, ast.Assign)
        if any(
            isinstance(target, ast.Name) and target.id == "pytestmark" for target in node.targets
        )
        for row in _rows_in(node.value)
    ]
    yield from _claims_below(module, everywhere, "")


def _claims_below(
    scope: ast.Module | ast.ClassDef, above: list[str], prefix: str
) -> Iterator[tuple[str, list[str]]]:
    for node in scope.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith(
            "test_"
        ):
            yield prefix + node.name, above + _rows_of(node)
        elif isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            yield from _claims_below(node, above + _rows_of(node), f"{prefix}{node.name}::")


def _rows_of(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> list[str]:
    return [row for decorator in node.decorator_list for row in _rows_in(decorator)]


def _rows_in(expression: ast.expr) -> list[str]:
    """Return the arguments of every `pytest.mark.row(…)` in the syntax tree."""
    return [
        argument.value
        for call in ast.walk(expression)
        if isinstance(call, ast.Call)
        if ast.unparse(call.func) == MARK
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


def _claims_in_scope() -> dict[str, tuple[str, ...]]:
    return {row: tests for row, tests in claims().items() if catalogue()[row].modes_in_scope}


class RowOutcomes:
    """A pytest plugin that fails the run if all tests of a row of the conformance table ran, and none passed.

    Only the controlling process, which gets the reports of all workers, makes this check. A run of a part of the suite
    checks only the rows whose tests all belong to that part.
    """

    NAME = "row outcomes"

    def __init__(
        self,
        claimed: Mapping[str, Collection[str]] | None = None,
        file: Path = row_results.FILE,
    ) -> None:
        self.collected: dict[str, set[str]] = {}
        """Row id -> node ids, without parameters, of the collected tests that are marked with the row."""
        self._claims = claimed
        self._file = file
        self._ran: set[str] = set()
        self._passed: set[str] = set()
        self._failed: set[str] = set()
        self._levels: dict[str, Level] = {}
        self._modes: dict[str, set[str]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for mark in item.iter_markers("row"):
                for row in mark.args:
                    self.collected.setdefault(row, set()).add(without_parameters(item.nodeid))

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        proof.begin()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.when == "call":
            item.user_properties.append((_LEVEL, proof.strongest().name))
            item.user_properties.append((_MODES, "+".join(proof.modes())))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = without_parameters(report.nodeid)
        self._ran.add(test)
        properties = dict(report.user_properties)
        if name := properties.get(_LEVEL):
            self._levels[test] = max(Level[str(name)], self._levels.get(test, Level.TABLE))
            self._modes.setdefault(test, set()).update(str(properties[_MODES]).split("+"))
        if report.failed:
            self._failed.add(test)
        elif report.when == "call" and report.passed:
            self._passed.add(test)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Report each unproved row of the conformance table as a failed test, so that pytest counts and prints the row.

        A row is unproved if all its tests ran and none of them passed.
        """
        is_worker = hasattr(session.config, "workerinput")
        if is_worker:
            return
        if session.config.getoption("record_rows", default=False):
            self.record()
        if session.shouldstop or session.shouldfail:
            return
        for row in self.unproved():
            report = pytest.TestReport(
                nodeid=f"tests/conformance/rows.toml::{row}",
                location=("tests/conformance/rows.toml", None, row),
                keywords={},
                outcome="failed",
                longrepr=f"no test that claims row {row} passed",
                when="call",
            )
            session.config.hook.pytest_runtest_logreport(report=report)
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def results(self) -> dict[str, Result]:
        """Return the outcome of each test that ran. A parametrized test failed if any of its cases failed."""
        return {
            test: Result(
                FAILED if test in self._failed else PASSED if test in self._passed else SKIPPED,
                self._levels.get(test, Level.TABLE),
                tuple(mode for mode in proof.MODES if mode in self._modes.get(test, ())),
            )
            for test in self._ran
        }

    def record(self) -> None:
        """Write the outcomes of this run to the file from which docs/conformance.md is generated."""
        found = claims() if self._claims is None else self._claims
        claiming = {test for tests in found.values() for test in tests}
        row_results.record(self.results(), claiming, self._file)

    def unproved(self) -> list[str]:
        """Return the ids of the table rows for which all tests ran in this session but no test passed.

        A parametrized test passed if at least one of its cases passed and none of them failed.
        """
        proofs = self._passed - self._failed
        if self._ran <= proofs:
            return []  # reading the claims takes a second
        found = _claims_in_scope() if self._claims is None else self._claims
        return [
            row
            for row, tests in found.items()
            if self._ran.issuperset(tests) and proofs.isdisjoint(tests)
        ]


def without_parameters(node_id: str) -> str:
    """Return the node id of the test function. It begins with `tests/` in whichever directory pytest was started.

    A scenario whose transcript names rows is a test of its own: its id is the path of the transcript.
    """
    path, _, name = node_id.partition("::")
    path = f"tests/{path.removeprefix('tests/')}"
    test, _, scenario = name.removesuffix("]").partition("[")
    transcript = f"{path.rpartition('/')[0]}/{SCENARIOS}/{scenario}.txt"
    return transcript if transcript in _transcripts_with_rows() else f"{path}::{test}"


@cache
def _transcripts_with_rows() -> frozenset[str]:
    return frozenset(
        path.relative_to(TESTS.parent).as_posix()
        for path in TESTS.rglob(f"{SCENARIOS}/*.txt")
        if rows_of(path)
    )
