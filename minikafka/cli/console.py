"""Standard output for tables: as wide as the terminal, or as wide as they need elsewhere.

Invariant: text comes out as it is. Paths, racks and addresses are the user's; rich would take `[…]` in
them for markup and `:name:` for a picture.
"""

from __future__ import annotations

from typing import Final

from rich.console import Console

WIDTH_OF_A_FILE: Final = 200


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """The reader has gone: the command ends of it as those without tables do. (rich ends it with 1.)"""
        raise BrokenPipeError


def plain_console() -> Console:
    """A console on standard output, as it is now."""
    console = _Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = WIDTH_OF_A_FILE
    return console
