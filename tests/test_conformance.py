"""Every row of the conformance table that is in scope has a test that passes; this module runs last.

A row is judged by this session when all tests that claim it were part of it: the whole suite judges every
row, a part of it those that it can.
"""

from __future__ import annotations

import ast
import subprocess
import sys

import pytest
from support.conformance_rows import TESTS, Row, RowOutcomes, catalogue, claims, claims_in

IN_SCOPE = [row for row in catalogue().values() if row.later is None]


@pytest.fixture
def outcomes(request: pytest.FixtureRequest) -> RowOutcomes:
    return request.config.pluginmanager.get_plugin(RowOutcomes.NAME)


def told(rows: list[Row]) -> list[str]:
    return [f"{row.id}: {row.what}" for row in rows]


def test_every_row_in_scope_is_claimed_by_a_test():
    assert told([row for row in IN_SCOPE if row.id not in claims()]) == []


def test_every_mark_names_a_row_of_the_table(outcomes):
    assert sorted((set(claims()) | set(outcomes.collected)) - set(catalogue())) == []


def test_the_source_and_the_collected_marks_tell_the_same(outcomes):
    collected = {test for tests in outcomes.collected.values() for test in tests}
    modules = {test.partition("::")[0] for test in collected}
    in_source = {
        (row, test)
        for row, tests in claims().items()
        for test in tests
        if test.partition("::")[0] in modules
    }

    marked = {(row, test) for row, tests in outcomes.collected.items() for test in tests}

    assert marked - in_source == set()


def test_every_row_whose_tests_ran_was_proved(outcomes):
    unproved = [
        row
        for row in IN_SCOPE
        if row.id in claims()
        if set(claims()[row.id]) <= outcomes.collected.get(row.id, set())
        if not outcomes.passed.intersection(claims()[row.id])
    ]

    assert told(unproved) == []


def test_claims_are_read_from_functions_classes_and_whole_modules():
    source = """
pytestmark = [pytest.mark.row("A1")]

@pytest.mark.row("B1", "B2")
def test_one(): ...

class TestSome:
    @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.row("C14"))])
    async def test_two(self, x): ...

def no_test(): ...
"""
    assert list(claims_in(ast.parse(source))) == [
        ("test_one", ["A1", "B1", "B2"]),
        ("TestSome::test_two", ["A1", "C14"]),
    ]


def test_a_row_whose_only_test_fails_or_is_skipped_is_named(tmp_path):
    (tmp_path / "conftest.py").write_text(
        f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support.conformance_rows import RowOutcomes

def pytest_configure(config):
    config.pluginmanager.register(RowOutcomes(), RowOutcomes.NAME)
"""
    )
    (tmp_path / "test_conformance.py").write_text(
        """
def test_told(request):
    outcomes = request.config.pluginmanager.get_plugin("row outcomes")
    proved = {row for row, tests in outcomes.collected.items() if tests & outcomes.passed}
    print(sorted(outcomes.collected), sorted(proved))
"""
    )
    (tmp_path / "test_other.py").write_text(
        """
import pytest

@pytest.mark.row("A1")
def test_good(): ...

@pytest.mark.row("A2")
def test_bad(): assert False

@pytest.mark.row("A7")
def test_skipped(): pytest.skip("no reason")

@pytest.mark.row("A8")
@pytest.mark.parametrize("x", [0, 1, 2])
def test_partly_bad(x): assert x != 1
"""
    )

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert "['A1', 'A2', 'A7', 'A8'] ['A1']" in ran.stdout, ran.stdout
