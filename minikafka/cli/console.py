"""Standard output for tables: as wide as the terminal, or 200 columns if the output is not a terminal.

Invariant: text is printed unchanged. Rich would interpret `[…]` as markup and `:name:` as an emoji, but
paths, racks and addresses may contain both.
"""

from __future__ import annotations

from typing import Final

from rich.console import Console

WIDTH_WITHOUT_TERMINAL: Final = 200


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError, as plain output does. Rich would end the process with exit code 1 instead."""
        raise BrokenPipeError


def plain_console() -> Console:
    """Return a console that writes to the current standard output."""
    console = _Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH_WITHOUT_TERMINAL
    return console
