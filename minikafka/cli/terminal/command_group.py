"""Command groups that suggest similar commands when the user misspells a command."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import click

_NEAR: Final = 0.6
"""Minimum similarity (difflib ratio) of a misspelt name and a suggested command."""


class Group(click.Group):
    """A command group whose error for an unknown command suggests the most similar commands."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names. Raises UsageError with a suggestion."""
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            found = self.suggestions(ctx, name)
            known = f"Known commands: {', '.join(self.list_commands(ctx))}."
            advice = f"Did you mean {' or '.join(found)}?" if found else known
            raise click.UsageError(f"No such command {name!r}. {advice}", ctx)
        return super().resolve_command(ctx, args)

    def suggestions(self, ctx: click.Context, name: str) -> list[str]:
        """Return the commands that the user may have meant by `name`."""
        return nearest(name, self.list_commands(ctx))


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that start with `name`, else at most three similar names, the best first."""
    import difflib  # imported here: only a misspelt name needs it

    names = list(known)
    longer = [other for other in names if other.startswith(name.lower())]
    return longer or difflib.get_close_matches(name.lower(), names, n=3, cutoff=_NEAR)
