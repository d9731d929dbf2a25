"""Standard output for tables: as wide as the terminal, or 200 columns if the output is not a terminal.

Invariant: text is printed unchanged. Rich would interpret `[…]` as markup and `:name:` as an emoji, but
paths, racks and addresses may contain both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

WIDTH_WITHOUT_TERMINAL: Final = 200


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, as plain output does. Rich would end the process with exit code 1 instead."""
        raise BrokenPipeError


def plain_console() -> Console:
    """Return a console that writes to the current standard output. With NO_COLOR set, it prints no styles."""
    console = _Console(
        highlight=False,
        markup=False,
        emoji=False,
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console


def print_lines(console: Console, lines: Sequence[Text]) -> None:
    """Print lines without cutting them.

    A terminal wraps a name or path itself, so that it can be copied. Sentences are wrapped between words.
    """
    for line in lines:
        is_sentence = " " in line.plain.strip()
        console.print(line, soft_wrap=not (console.is_terminal and is_sentence))
