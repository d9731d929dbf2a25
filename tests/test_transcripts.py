"""Transcripts fail when a machine answers something else, and `--rewrite` writes what it answers."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from support.deciders.transcripts import Input, play

ADDITION = """# Two numbers are added.

> add 1 2
  3

# A word with a space, and an option.
> say "two words" loud=yes
  TWO WORDS
"""


def player(heard: Input) -> Iterable[str]:
    if heard.verb == "add":
        return [str(sum(map(int, heard.words)))]
    text = " ".join(heard.words)
    return [text.upper() if heard.option("loud") else text]


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "addition.txt"
    file.write_text(ADDITION)
    return file


def test_transcript_passes_when_the_machine_answers_as_it_says(scenario):
    play(scenario, player, rewrite=False)


@pytest.mark.parametrize(
    ("told", "other"),
    [
        pytest.param("  3\n", "  4\n", id="another answer"),
        pytest.param("  3\n", "", id="no answer"),
        pytest.param("  3\n", "  3\n  3\n", id="one answer more"),
        pytest.param("loud=yes", "loud=yes soft=yes", id="an option that nothing uses"),
        pytest.param("# A word", "A word", id="neither input nor comment"),
        pytest.param("# Two numbers are added.\n", "", id="no title"),
    ],
)
def test_transcript_fails_when_it_tells_something_else(scenario, told, other):
    scenario.write_text(ADDITION.replace(told, other))

    with pytest.raises(AssertionError):
        play(scenario, player, rewrite=False)


def test_rewrite_replaces_the_answers_and_keeps_the_rest(scenario):
    scenario.write_text(ADDITION.replace("  3\n", "  5\n  6\n").replace("  TWO WORDS\n", ""))

    play(scenario, player, rewrite=True)

    assert scenario.read_text() == ADDITION
