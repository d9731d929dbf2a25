"""Every row of the conformance table that is in scope is claimed by a test, and `RowOutcomes` fails unproved rows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest
from support.conformance_rows import TESTS, RowOutcomes, catalogue, claims, claims_in


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """Row id -> node ids of the tests of this session that carry its mark."""
    return request.config.pluginmanager.get_plugin(RowOutcomes.NAME).collected


def test_every_row_in_scope_is_claimed_by_a_test():
    in_scope = [row for row in catalogue().values() if row.later is None]
    assert [f"{row.id}: {row.what}" for row in in_scope if row.id not in claims()] == []


def test_every_row_mark_names_a_row_of_the_table(collected):
    assert sorted((set(claims()) | set(collected)) - set(catalogue())) == []


def test_every_collected_row_mark_is_found_in_the_source(collected):
    marked = {(row, test) for row, tests in collected.items() for test in tests}
    in_source = {(row, test) for row, tests in claims().items() for test in tests}

    assert marked - in_source == set()


def test_claims_are_read_from_functions_classes_and_modules():
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


@pytest.mark.parametrize("workers", [0, 2])
def test_run_fails_for_each_row_whose_tests_ran_and_none_passed(tmp_path, workers):
    (tmp_path / "conftest.py").write_text(
        f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support.conformance_rows import RowOutcomes

CLAIMS = {{
    "A1": ["tests/test_a.py::test_good", "tests/test_b.py::test_bad"],
    "A2": ["tests/test_b.py::test_bad"],
    "A3": ["tests/test_b.py::test_skipped"],
    "A4": ["tests/test_b.py::test_partly_bad", "tests/test_a.py::test_also_skipped"],
    "A5": ["tests/test_b.py::test_bad", "tests/test_c.py::test_did_not_run"],
}}

def pytest_configure(config):
    config.pluginmanager.register(RowOutcomes(CLAIMS), RowOutcomes.NAME)
"""
    )
    (tmp_path / "test_a.py").write_text(
        """
import pytest

def test_good(): ...

def test_also_skipped(): pytest.skip("no reason")
"""
    )
    (tmp_path / "test_b.py").write_text(
        """
import pytest

def test_bad(): assert False

def test_skipped(): pytest.skip("no reason")

@pytest.mark.parametrize("x", [0, 1, 2])
def test_partly_bad(x): assert x != 1
"""
    )

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"-n{workers}", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert re.findall(r"^FAILED \S+rows.toml::(\w+)", ran.stdout, re.MULTILINE) == [
        "A2",
        "A3",
        "A4",
    ]
    assert "5 failed, 3 passed, 2 skipped" in ran.stdout.splitlines()[-1], ran.stdout


def test_run_fails_when_the_only_unproved_row_was_skipped(tmp_path):
    (tmp_path / "conftest.py").write_text(
        f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support.conformance_rows import RowOutcomes

def pytest_configure(config):
    config.pluginmanager.register(RowOutcomes({{"A1": ["tests/test_a.py::test_skipped"]}}))
"""
    )
    (tmp_path / "test_a.py").write_text(
        "import pytest\ndef test_skipped(): pytest.skip('no reason')"
    )

    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )

    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
