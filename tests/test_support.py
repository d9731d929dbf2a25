"""The map of the support modules of the tests (`support/README.md`), and modules that all tests share."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

import pytest
from support.cases import for_each
from support.source_files import ROOT, code_of, files_below, prose_of, tree_of

SUPPORT = ROOT / "tests" / "support"
ROOM_MODULES_MAX = 15


def modules() -> dict[str, dict[str, str]]:
    """Return the modules of each room, with the first line of their docstrings. Modules in no room have the room ""."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in files_below(SUPPORT):
        room = "" if path.parent == SUPPORT else path.parent.name
        text = ast.get_docstring(tree_of(path)) or ""
        found[room][path.name] = text.partition("\n")[0]
    return found


def test_map_has_a_line_for_each_support_module():
    told: dict[str, dict[str, str]] = defaultdict(dict)
    room = ""
    for line in (SUPPORT / "README.md").read_text().splitlines():
        if line.startswith("## "):
            room = line.removeprefix("## ")
        elif row := re.fullmatch(r"- `(\w+\.py)`: (.+)", line):
            told[room][row[1]] = row[2]
    assert told == modules()


def test_no_room_of_support_modules_is_crowded():
    crowded = {room: len(names) for room, names in modules().items()}
    assert {room for room, count in crowded.items() if count > ROOM_MODULES_MAX} == set()


SOURCE = '''"""A module."""
x = "no # comment"  # a 'comment'
def f():
    r"""A "docstring"
    of two lines."""
    g("""no docstring""", 'it\\'s')
'''


def test_prose_of_a_source_file_is_its_docstrings_and_comments():
    assert list(prose_of(SOURCE)) == [
        "A module.",
        "# a 'comment'",
        'A "docstring"\n    of two lines.',
    ]


def test_code_of_a_source_file_has_its_line_breaks_but_no_strings_and_comments():
    assert code_of(SOURCE) == "\nx =   \ndef f():\n    r\n\n    g(, )\n"


def test_failure_names_the_case_of_a_test_with_many_cases():
    tried = []

    @for_each({"small": (1, 2), "wrong": (2, 1), "last": (3, 4)})
    def check(low: int, high: int) -> None:
        tried.append(low)
        assert low < high

    with pytest.raises(AssertionError) as failed:
        check()
    assert failed.value.__notes__ == ["in the case 'wrong'"]
    assert tried == [1, 2]


def test_test_without_cases_is_refused():
    with pytest.raises(AssertionError, match="cannot fail"):
        for_each([])
