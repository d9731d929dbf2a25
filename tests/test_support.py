"""The map of the support modules of the tests (`support/README.md`)."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

SUPPORT = Path(__file__).parent / "support"
ROOM_MODULES_MAX = 15


def modules() -> dict[str, dict[str, str]]:
    """Return the modules of each room, with the first line of their docstrings. Modules in no room have the room ""."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for path in sorted(SUPPORT.rglob("*.py")):
        room = "" if path.parent == SUPPORT else path.parent.name
        text = ast.get_docstring(ast.parse(path.read_text())) or ""
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
