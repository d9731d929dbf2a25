"""The bugs of scripts/planted: each can be planted, has tests, and every safety rule has at least one bug."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from support.source_files import text_of

from scripts import planted
from scripts.planted import ROOT, MisfitError, Outcome, Place, Plant, locate, read_plants, try_plant

PLANTS = read_plants()
SAFETY_ROWS = {f"R{number}" for number in range(26, 46)}


def test_planted_bug_fits_the_code_and_has_existing_tests() -> None:
    """A planted bug whose text or tests are gone no longer checks anything.

    If this test fails, adapt the file in `scripts/plants` that the message begins with.
    """
    problems = [
        f"{plant.area}: {plant.what}: {problem}" for plant in PLANTS for problem in misfits(plant)
    ]
    assert problems == []


def misfits(plant: Plant) -> Iterator[str]:
    """Yield why the bug cannot be planted, and which of its tests do not exist."""
    try:
        place = locate(plant, ROOT)
    except MisfitError as error:
        yield str(error)
        return
    changed = place.changed()
    if changed == place.text:
        yield "it changes nothing"
    compile_bug(place, plant.what)
    if not plant.tests:
        yield "it has no tests"
    yield from (f"no test {test}" for test in plant.tests if not exists(test))


def compile_bug(place: Place, what: str) -> None:
    """Compile the definition with the bug alone, or its module if the definition needs the code around it.

    To compile the module of each bug would take ten times as long.
    """
    try:
        compile(dedent(place.definition()), what, "exec")
    except SyntaxError:
        compile(place.changed(), what, "exec")


def exists(test: str) -> bool:
    function, _, scenario = test.rstrip("]").partition("[")
    path, *names = function.split("::")
    transcripts = (ROOT / path).with_name("transcripts")
    if not (ROOT / path).exists():
        return False
    if (
        scenario
        and path.endswith("/test_transcripts.py")
        and not (transcripts / f"{scenario}.txt").exists()
    ):
        return False
    return all(re.search(rf"(def|class) {name}\b", text_of(ROOT / path)) for name in names)


def test_every_rule_and_every_safety_row_has_a_planted_bug() -> None:
    """A rule without a bug has tests that may be unable to fail."""
    rules = re.findall(r"^\| ([SU]\d+) \|", (ROOT / "docs" / "rules.md").read_text(), re.MULTILINE)
    broken = {rule for plant in PLANTS for rule in plant.rules}
    assert len(rules) > 20
    assert {*rules, *SAFETY_ROWS} - broken == set()


def project(root: Path) -> Path:
    """Write a module and its test below `root`; return the module."""
    file = root / "minikafka" / "a.py"
    file.parent.mkdir()
    file.write_text("answer = 1\n")
    test = "import sys\nsys.path.insert(0, 'minikafka')\ndef test_it():\n    import a\n    assert a.answer == 1\n"
    (root / "test_answer.py").write_text(test)
    (root / "pytest.ini").write_text("[pytest]\n")
    return file


def plant(old: str, new: str, at: str = "answer") -> Plant:
    return Plant(("S01",), "a bug", at, old, new, ("test_answer.py",))


def package(root: Path, **modules: str) -> Path:
    """Write modules of a package `minikafka` below `root`; `__` in a name is a folder. Return `root`."""
    for name, text in modules.items():
        file = root / "minikafka" / f"{name.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


ISR = """
LIMIT = 3


class Isr:
    def confirm(self, isr):
        # The reason.
        if self.pending:
            self.isr = isr
            self.pending = None

    def maximal(self):
        return self.isr
"""


@pytest.mark.parametrize("module", ["replication__isr", "broker__replicas__moved"])
def test_bug_is_planted_wherever_its_function_is(tmp_path: Path, module: str) -> None:
    place = locate(
        plant("return self.isr", "return ()", "Isr.maximal"), package(tmp_path, **{module: ISR})
    )
    assert place.changed() == ISR.replace("return self.isr", "return ()")


def test_bug_is_planted_in_a_table_of_a_module(tmp_path: Path) -> None:
    place = locate(plant("3", "4", "LIMIT"), package(tmp_path, isr=ISR))
    assert place.changed() == ISR.replace("3", "4")


def test_bug_is_planted_whatever_the_line_breaks_and_comments(tmp_path: Path) -> None:
    text = """
def f():
    return [
        g(
            1,  # the reason
            2,
        )
    ]
"""
    place = locate(plant("[g(1, 2)]", "None", "f"), package(tmp_path, a=text))
    assert place.changed() == "\ndef f():\n    return None\n"


def test_lines_of_a_bug_are_indented_like_the_code_that_they_replace(tmp_path: Path) -> None:
    old = "self.isr = isr\nself.pending = None"
    place = locate(
        plant(old, "if isr:\n    self.isr = isr", "Isr.confirm"), package(tmp_path, isr=ISR)
    )
    assert "            if isr:\n                self.isr = isr\n\n" in place.changed()


@pytest.mark.parametrize(
    ("at", "old", "why"),
    [
        ("Isr.confrim", "x", "minikafka has no Isr.confrim; closest: Isr.confirm"),
        ("Isr.maximal", "return self.irs", "is not in Isr.maximal .*; closest: return self.isr"),
        ("Isr.confirm", "self.pending", "2 times in Isr.confirm .*, on the lines 8, 10"),
        ("run", "pass", "run does not name one module; run is in a/one.py, b/one.py, b/two.py"),
        ("one:run", "pass", "one:run does not name one module; run is in a/one.py, b/one.py$"),
        ("c:run", "pass", "c:run does not name one module; run is in a/one.py, b/one.py"),
        ("Isr.confirm", "elf.isr = isr", "is not in Isr.confirm"),
    ],
)
def test_bug_that_no_longer_fits_is_reported_with_the_reason(
    tmp_path: Path, at: str, old: str, why: str
) -> None:
    run = "def run():\n    pass\n"
    root = package(tmp_path, isr=ISR, a__one=run, b__one=run, b__two=run)
    with pytest.raises(MisfitError, match=why):
        locate(plant(old, "", at), root)


@pytest.mark.parametrize("at", ["a:run", "b/one:run", "two:run"])
def test_module_or_folder_before_a_name_tells_modules_apart(tmp_path: Path, at: str) -> None:
    run = "def run():\n    pass\n"
    root = package(tmp_path, a__one=run, b__one=run, b__two=run)
    assert locate(plant("pass", "return 1", at), root).line == 2


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
    lost = try_plant(plant("answer = 3", new), tmp_path)
    assert (lost.result, "closest: answer = 1" in lost.found_by) == ("CANNOT BE PLANTED", True)


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
