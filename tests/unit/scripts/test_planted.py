"""The bugs of scripts/planted: each can be planted, has tests, and every safety rule has at least one bug."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from scripts import planted
from scripts.planted import ROOT, Outcome, Plant, read_plants, try_plant

PLANTS = read_plants()
SAFETY_ROWS = {f"R{number}" for number in range(26, 46)}


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.what)
def test_planted_bug_replaces_a_text_that_occurs_once_and_has_existing_tests(plant: Plant) -> None:
    assert plant.applies(ROOT), f"adapt scripts/plants.toml: not once in the file:\n{plant.old}"
    assert plant.old != plant.new
    compile((ROOT / "minikafka" / plant.file).read_text().replace(plant.old, plant.new), "", "exec")
    assert plant.tests
    for test in plant.tests:
        file, *names = test.split("::")
        source = (ROOT / file).read_text()
        assert all(re.search(rf"(def|class) {name}\b", source) for name in names), test


def test_every_rule_and_every_safety_row_has_a_planted_bug() -> None:
    rules = re.findall(r"^\| ([SU]\d+) \|", (ROOT / "docs" / "rules.md").read_text(), re.MULTILINE)
    broken = {rule for plant in PLANTS for rule in plant.rules}
    assert len(rules) > 20
    assert {*rules, *SAFETY_ROWS} - broken == set()


def test_page_of_the_rules_names_the_modules_in_which_bugs_break_them() -> None:
    page = (ROOT / "docs" / "rules.md").read_text()
    rows = re.findall(r"^\| ([SU]\d+) \|.*\| (.+) \|$", page, re.MULTILINE)
    held_in = {rule: set(re.findall(r"`(.+?)`", modules)) for rule, modules in rows}
    for rule, modules in held_in.items():
        assert {plant.file for plant in PLANTS if rule in plant.rules} <= modules, rule
        assert all((ROOT / "minikafka" / module).exists() for module in modules), rule


def project(root: Path) -> Path:
    """Write a module and its test below `root`; return the module."""
    file = root / "minikafka" / "a.py"
    file.parent.mkdir()
    file.write_text("answer = 1\n")
    test = "import sys\nsys.path.insert(0, 'minikafka')\ndef test_it():\n    import a\n    assert a.answer == 1\n"
    (root / "test_answer.py").write_text(test)
    (root / "pytest.ini").write_text("[pytest]\n")
    return file


def plant(old: str, new: str) -> Plant:
    return Plant(("S01",), "a bug", "a.py", old, new, ("test_answer.py",))


@pytest.mark.parametrize(
    ("new", "result", "found_by"),
    [
        ("answer = 2", "found", "test_answer.py::test_it"),
        ("answer = 1  # harmless", "SURVIVED", ""),
    ],
)
def test_plant_is_found_if_one_of_its_tests_fails(
    tmp_path: Path, new: str, result: str, found_by: str
) -> None:
    file = project(tmp_path)
    one = plant("answer = 1", new)
    assert try_plant(one, tmp_path) == Outcome(one, result, found_by)
    assert file.read_text() == "answer = 1\n"
    assert not list(file.parent.rglob("a.*.pyc")), "a next bug of the same size would not be seen"
    assert try_plant(plant("answer = 3", new), tmp_path).result == "CANNOT BE PLANTED"


WAIT = """
import time
while True:
    try:
        time.sleep(0.1)
    except BaseException:
        pass
"""


@pytest.mark.timeout(60)
def test_plant_is_found_if_a_test_waits_for_ever_and_loses_exceptions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project(tmp_path)
    monkeypatch.setattr(planted, "TEST_TIMEOUT_S", 1)
    outcome = try_plant(plant("answer = 1", WAIT), tmp_path)
    assert (outcome.result, outcome.found_by) == ("found", planted.NO_END)
