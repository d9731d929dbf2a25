"""Transcripts: text files that tell what comes into a state machine and what the machine answers.

A file is one scenario. Its first line is a comment with a sentence that says what the scenario shows. A line that
begins with `> ` is an input, and the indented lines after it are the answers:

    # A consumer that joins an empty group leads it.

    > join g member=a timeout=10s
      answer a: leader=a generation=1 members=a

A line `# Rows: A1, B2` names the rows of the conformance table that the scenario proves.
Blank lines and comments may stand anywhere. An input has a verb, words and options (`name=value`); a word or a value
with spaces is quoted as in a shell. A player turns each input into its answers. With `pytest --rewrite`, the answers of
the players replace those in the files; the diff is then reviewed like code.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

import pytest

INPUT = "> "
ANSWER = "  "
ROWS = "# Rows: "


class Input:
    """One input: `verb`, `words` and the options, which the player takes one by one."""

    def __init__(self, text: str) -> None:
        self.verb, *parts = shlex.split(text)
        self.words = [part for part in parts if "=" not in part]
        self._options = dict(part.split("=", 1) for part in parts if "=" in part)

    def option(self, name: str, default: str = "") -> str:
        """Take an option. An option that the player does not take is an error in the transcript."""
        return self._options.pop(name, default)

    def number(self, name: str, default: int = 0) -> int:
        """Take an option that is an integer."""
        return int(self.option(name, str(default)))

    def flag(self, name: str) -> bool:
        """Return True if `name` is among the words, and take it out of them."""
        if name not in self.words:
            return False
        self.words.remove(name)
        return True

    @property
    def unused(self) -> list[str]:
        """The options that the player has not taken."""
        return list(self._options)


Player: TypeAlias = Callable[[Input], Iterable[str]]
"""Function (input) -> lines of the answer. It keeps the state of the scenario from one input to the next."""


def scenarios(module: str) -> list[object]:
    """Return the parameters of a test: the files `transcripts/*.txt` beside its module, whose path is `module`."""
    files = sorted((Path(module).parent / "transcripts").glob("*.txt"))
    assert files, f"{module} has no folder transcripts with scenarios"
    return [
        pytest.param(file, id=file.stem, marks=[pytest.mark.row(row) for row in rows_of(file)])
        for file in files
    ]


def rows_of(file: Path) -> list[str]:
    """Return the ids of the conformance rows that the scenario proves."""
    lines = file.read_text().splitlines()
    named = [line.removeprefix(ROWS).split(", ") for line in lines if line.startswith(ROWS)]
    return [row for rows in named for row in rows]


def play(file: Path, player: Player, *, rewrite: bool) -> None:
    """Compare a scenario with what the player answers; with `rewrite`, write the answers into the file instead."""
    told = file.read_text()
    assert told.startswith("# "), f"{file.name} must begin with a comment that says what it shows"
    happened = "\n".join(_replayed(file, told.splitlines(), player)) + "\n"
    if rewrite:
        file.write_text(happened)
    else:
        assert happened.splitlines() == told.splitlines(), f"{file}: see the difference below"


def _replayed(file: Path, lines: list[str], player: Player) -> Iterable[str]:
    """Yield the lines of the file with the answers of the player in the place of those in the file."""
    for number, line in enumerate(lines, 1):
        if line.startswith(ANSWER):
            continue
        yield line
        if line.startswith(INPUT):
            heard = Input(line.removeprefix(INPUT))
            yield from (ANSWER + answer for answer in player(heard))
            assert not heard.unused, f"{file.name}:{number}: nothing uses {heard.unused}"
        else:
            assert not line or line.startswith("#"), (
                f"{file.name}:{number}: neither input nor comment"
            )
