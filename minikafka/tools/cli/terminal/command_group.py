"""Command groups that suggest similar commands when the user misspells a command, and import only the one that runs."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import click
from click.shell_completion import CompletionItem

_NEAR: Final = 0.6
"""Minimum similarity (difflib ratio) of a misspelt name and a suggested command."""


class CommandGroup(click.Group):
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


class Entry(NamedTuple):
    """One command: the module of the group's package that defines it, and its line in `--help`.

    The function has the name of the command, with `_` in place of `-`, and a `_` after the name of a Python function.
    """

    module: str
    summary: str


class LazyGroup(CommandGroup):
    """The group of the commands in `table`; a command's module is imported when the command is used."""

    def __init__(self, *args: Any, table: Mapping[str, Entry], package: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self._table = table
        self._package = package

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of the table."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None if the table lacks it."""
        entry = self._table.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"{self._package}.{entry.module}")
        name = cmd_name.replace("-", "_")
        command = getattr(module, name, None) or getattr(module, f"{name}_")
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin with `incomplete`. Click's own method would import every command."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [
            CompletionItem(name, help=entry.summary)
            for name, entry in self._table.items()
            if name.startswith(incomplete)
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summaries of the table. Click's own method would import every command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in self._table.items()])


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names that start with `name`, else at most three similar names, the best first."""
    names = list(known)
    longer = [other for other in names if other.startswith(name.lower())]
    return longer or difflib.get_close_matches(name.lower(), names, n=3, cutoff=_NEAR)
