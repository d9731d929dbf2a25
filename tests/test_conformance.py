"""The conformance table: each row in scope has a test, and a run fails if all tests of a row ran and none passed."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
from support.rows import proof, row_results
from support.rows.conformance_rows import TESTS, Row, RowOutcomes, catalogue, claims, claims_in
from support.rows.proof import Level
from support.rows.row_results import Result

WRITE_DOCS = runpy.run_path(str(TESTS.parent / "scripts" / "write_docs.py"))
RAN = Result("passed", Level.TABLE)


def run_pytest(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in a directory, without the plugins that they do not need."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist.plugin", *options, "."],
        cwd=directory,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def collected(request: pytest.FixtureRequest) -> dict[str, set[str]]:
    """Return, for each conformance row id, the node ids of the collected tests that are marked with the row."""
    return request.config.pluginmanager.get_plugin(RowOutcomes.NAME).collected


def test_every_conformance_row_in_scope_is_named_by_the_mark_of_a_test():
    """A requirement without a test is a claim."""
    in_scope = [row for row in catalogue().values() if row.modes_in_scope]
    assert [f"{row.id}: {row.what}" for row in in_scope if row.id not in claims()] == []


def test_every_row_mark_of_a_test_names_a_row_of_the_conformance_table(collected):
    """A test with a misspelled id would prove no row."""
    assert sorted((set(claims()) | set(collected)) - set(catalogue())) == []


def test_reading_the_source_finds_every_row_mark_that_pytest_collects(collected):
    marked = {(row, test) for row, tests in collected.items() for test in tests}
    in_source = {(row, test) for row, tests in claims().items() for test in tests}

    assert marked - in_source == set()


def test_row_marks_are_read_from_test_functions_classes_and_modules():
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


PROJECT = {
    "conftest.py": f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(TESTS)!r})
from support.rows.conformance_rows import RowOutcomes

CLAIMS = {{
    "A1": ["tests/test_a.py::test_good", "tests/test_b.py::test_bad"],
    "A2": ["tests/test_b.py::test_bad"],
    "A3": ["tests/test_b.py::test_skipped"],
    "A4": ["tests/test_b.py::test_partly_bad", "tests/test_a.py::test_also_skipped"],
    "A5": ["tests/test_b.py::test_bad", "tests/test_c.py::test_did_not_run"],
    "A6": ["tests/test_a.py::test_of_levels"],
}}

def pytest_addoption(parser):
    parser.addoption("--record-rows", action="store_true")

def pytest_configure(config):
    config.pluginmanager.register(RowOutcomes(CLAIMS, Path("outcomes.json")), RowOutcomes.NAME)
""",
    "test_a.py": """
import pytest
from support.rows import proof

def test_good(): ...

def test_also_skipped(): pytest.skip("no reason")

@pytest.mark.parametrize("level", ["MEMORY", "REAL", "TABLE"])
def test_of_levels(level):
    modes = {"MEMORY": "leaders", "REAL": "controller", "TABLE": ""}
    proof.note(proof.Level[level], modes[level])

def test_without_a_row(): ...
""",
    "test_b.py": """
import pytest

def test_bad(): assert False

def test_skipped(): pytest.skip("no reason")

@pytest.mark.parametrize("x", [0, 1, 2])
def test_partly_bad(x): assert x != 1
""",
}


@pytest.mark.parametrize("workers", [0, 2])
def test_run_fails_for_each_unproved_row_and_records_the_results_of_its_tests(tmp_path, workers):
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(text)
    file = tmp_path / "outcomes.json"
    former = {"tests/test_b.py::test_bad": Result("passed", Level.REAL), "gone": RAN}
    row_results.record(former, ["gone"], file)

    ran = run_pytest(tmp_path, f"-n{workers}", "--record-rows")

    assert re.findall(r"^FAILED \S+rows.toml::(\w+)", ran.stdout, re.MULTILINE) == [
        "A2",
        "A3",
        "A4",
    ]
    assert "5 failed, 7 passed, 2 skipped" in ran.stdout.splitlines()[-1], ran.stdout
    assert row_results.read(file) == {
        "tests/test_a.py::test_also_skipped": Result("skipped", Level.TABLE),
        "tests/test_a.py::test_good": RAN,
        "tests/test_a.py::test_of_levels": Result("passed", Level.REAL, ("controller", "leaders")),
        "tests/test_b.py::test_bad": Result("failed", Level.TABLE),
        "tests/test_b.py::test_partly_bad": Result("failed", Level.TABLE),
        "tests/test_b.py::test_skipped": Result("skipped", Level.TABLE),
    }


def test_level_of_a_test_is_hosted_when_a_broker_died_by_closing(monkeypatch):
    monkeypatch.setattr(proof, "_noted", Level.TABLE)
    monkeypatch.setattr(proof, "_limit", Level.REAL)
    proof.note(Level.REAL)
    assert proof.strongest() is Level.REAL
    proof.note_imitated_death()
    assert proof.strongest() is Level.HOSTED


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        (["passed table", "passed real"], "**real**"),
        (["passed real", "failed real"], "**failed**; 1 failed"),
        (["passed memory", None], "**memory**; 1 not run"),
        (["passed hosted", "passed memory"], "**hosted**"),
        ([None], "**open**; 1 not run"),
        (["skipped real"], "**open**; 1 skipped"),
    ],
)
def test_conformance_page_takes_the_status_of_a_row_from_the_recorded_run(
    tmp_path, outcomes, status
):
    tests = [f"tests/test_a.py::test_{number}" for number in range(len(outcomes))]
    file = tmp_path / "outcomes.json"
    ran = {test: text for test, text in zip(tests, outcomes, strict=True) if text}
    file.write_text(json.dumps({"tests": ran}))

    page = WRITE_DOCS["conformance_page"]([Row("A1", "group", "what")], {"A1": tests}, file)

    assert f"| A1 | what | as described | controller | {status} |" in page


def test_conformance_page_shows_why_a_row_is_postponed_or_not_met_as_described(tmp_path):
    rows = [
        Row("A1", "group", "what", later={"controller": "the reason"}),
        Row("A2", "group", "more", partly="a part"),
        Row("A3", "group", "else", otherwise="a decision", later={"controller": "no test"}),
    ]
    file = tmp_path / "outcomes.json"
    file.write_text(json.dumps({"tests": {"tests/test_a.py::test": "passed table"}}))

    page = WRITE_DOCS["conformance_page"](rows, {"A2": ["tests/test_a.py::test"]}, file)

    assert "| A1 | what | as described | controller | *later*: the reason |" in page
    assert "| A2 | more | *partly*: a part | controller | **table** |" in page
    assert "| A3 | else | *decided otherwise*: a decision | controller | *later*: no test |" in page
    assert (
        "3 rows: 1 passed (0 real, 0 hosted, 0 memory, 1 table), 0 failed, 0 open, 2 later." in page
    )
    assert "3 rows in all: 1 as described, 1 partly, 1 decided otherwise." in page


def test_conformance_page_shows_the_status_of_a_row_in_each_of_its_modes(tmp_path):
    tests = {
        "tests/test_a.py::test_one": "passed real",
        "tests/test_a.py::test_both": "passed memory controller+leaders",
        "tests/unit/deciders/leaders/test_b.py::test_two": "passed table",
        "tests/unit/deciders/controller/test_b.py::test_three": "passed table",
        "tests/test_a.py::test_parts": "passed table",
    }
    one, both, leaders, controller, parts = tests
    file = tmp_path / "outcomes.json"
    file.write_text(json.dumps({"tests": tests}))
    modes = ("controller", "leaders")
    rows = [
        Row("A1", "group", "what", modes),
        Row("A2", "group", "what", modes),
        Row("A3", "group", "what", modes),
        Row("A4", "group", "what", modes, later={"leaders": "the reason"}),
        Row("A5", "group", "what", ("leaders",)),
    ]
    claimed = {"A1": [one, both], "A2": [one, leaders], "A3": [parts], "A4": [controller]}

    page = WRITE_DOCS["conformance_page"](rows, claimed, file)

    assert "| both | controller **real**, leaders **memory** |" in page
    assert "| both | controller **real**, leaders **table** |" in page
    assert "| both | controller **table**, leaders **table** |" in page
    assert "| both | controller **table**, leaders *later*: the reason |" in page
    assert "| A5 | what | as described | leaders | **open** |" in page


def test_conformance_page_lists_each_test_once_in_the_order_of_names(tmp_path):
    later, first = "tests/test_a.py::test_later", "tests/test_a.py::test_first"
    scenario = "tests/unit/transcripts/a-scenario.txt"
    file = tmp_path / "outcomes.json"
    file.write_text(json.dumps({"tests": {later: "passed real", scenario: "failed table"}}))
    rows = [Row("A2", "group", "what"), Row("A10", "group", "what")]
    claimed = {"A10": [later, first], "A2": [later, scenario]}

    page = WRITE_DOCS["conformance_page"](rows, claimed, file)

    assert page[page.index("`tests/test_a.py`") :] == (
        "`tests/test_a.py`\n\n"
        "- `test_first` (not run): A10\n"
        "- `test_later` (real): A2, A10\n\n"
        "`tests/unit/transcripts`\n\n"
        "- `a-scenario.txt` (failed table): A2\n"
    )


def test_every_conformance_row_has_a_recorded_pass_in_each_of_its_modes():
    """A test that is always skipped proves nothing."""
    recorded = row_results.read()
    unproved = [
        f"{row.id} ({mode})"
        for row in catalogue().values()
        for mode in row.modes_in_scope
        if not any(
            test in recorded
            and recorded[test].outcome == "passed"
            and recorded[test].shows(test, mode)
            for test in claims().get(row.id, ())
        )
    ]
    assert unproved == [], "run `pytest --record-rows` on their tests, then scripts/write_docs.py"


def test_run_fails_when_the_only_test_of_a_conformance_row_was_skipped(tmp_path):
    (tmp_path / "conftest.py").write_text(
        f"""
import sys
sys.path.insert(0, {str(TESTS)!r})
from support.rows.conformance_rows import RowOutcomes

def pytest_configure(config):
    config.pluginmanager.register(RowOutcomes({{"A1": ["tests/test_a.py::test_skipped"]}}))
"""
    )
    (tmp_path / "test_a.py").write_text(
        "import pytest\ndef test_skipped(): pytest.skip('no reason')"
    )

    ran = run_pytest(tmp_path)

    assert ran.returncode == pytest.ExitCode.TESTS_FAILED
