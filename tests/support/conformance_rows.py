"""The rows of the conformance table, the tests that claim them, and how those fared.

What a test claims is read twice: from the source, which is the same whatever part of the suite runs
(docs/conformance.md is written from it), and from the collected marks, whose outcomes are kept.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
LAST = "test_conformance.py"
"""The module that judges the others, and so runs behind them."""


@dataclass(frozen=True)
class Row:
    """One line of the table; `later` is why no test proves it yet, None for a row in scope."""

    id: str
    group: str
    what: str
    later: str | None


@cache
def catalogue() -> dict[str, Row]:
    """All rows by id, in the order of the table."""
    table = tomllib.loads((TESTS / "conformance" / "rows.toml").read_text())
    later = {row: entry["reason"] for entry in table["later"] for row in entry["rows"]}
    rows: dict[str, Row] = {}
    for group in table["group"]:
        for row, what in group["rows"].items():
            assert row not in rows, f"{row} stands in the table twice"
            rows[row] = Row(row, group["title"], what, later.get(row))
    assert set(later) <= set(rows)
    return rows


@cache
def claims() -> dict[str, tuple[str, ...]]:
    """Row id -> node ids of the tests whose source names it, in order of path and line."""
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        module = path.relative_to(TESTS.parent).as_posix()
        for test, rows in claims_in(ast.parse(path.read_text())):
            for row in rows:
                found.setdefault(row, []).append(f"{module}::{test}")
    return {row: tuple(dict.fromkeys(tests)) for row, tests in found.items()}


def claims_in(module: ast.Module) -> Iterator[tuple[str, list[str]]]:
    """Each test of a module, and the rows that marks on it, its class or the module name."""
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
    """The arguments of every `pytest.mark.row(…)` in it."""
    return [
        argument.value
        for call in ast.walk(expression)
        if isinstance(call, ast.Call)
        if ast.unparse(call.func) == "pytest.mark.row"
        for argument in call.args
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
    ]


class RowOutcomes:
    """A pytest plugin: which rows the tests of this session claim, and which tests passed."""

    NAME = "row outcomes"

    def __init__(self) -> None:
        self.collected: dict[str, set[str]] = {}
        """Row id -> node ids, parameters left out."""
        self.passed: set[str] = set()
        """Node ids, parameters left out, of which every part that ran has passed."""
        self._failed: set[str] = set()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: item.path.name == LAST)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for mark in item.iter_markers("row"):
                for row in mark.args:
                    self.collected.setdefault(row, set()).add(without_parameters(item.nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = without_parameters(report.nodeid)
        if report.failed:
            self._failed.add(test)
            self.passed.discard(test)
        elif report.when == "call" and report.passed and test not in self._failed:
            self.passed.add(test)


def without_parameters(node_id: str) -> str:
    """The node id of a test function, with `tests/` in front from wherever pytest was started."""
    path, _, name = node_id.partition("::")
    return f"tests/{path.removeprefix('tests/')}::{name.partition('[')[0]}"
