"""The result of a pipeline, which the command prints as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Fact: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """Rows of a result. The names in `columns` are the keys of each row in JSON."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Fact, ...], ...]


@dataclass(frozen=True)
class Summary:
    """The result of a pipeline. `ok`: True for success (exit code 0), False for failure (exit code 1).

    `facts`: values by name, in the order in which they are printed. The JSON document uses the same names.
    The text output shows each `_` in a name as a space. A fact must not have the name of a table, because
    both are keys of the JSON document.
    """

    title: str
    facts: Mapping[str, Fact] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    ok: bool = True

    def __post_init__(self) -> None:
        if both := self.facts.keys() & {table.name for table in self.tables}:
            raise ValueError(f"a fact and a table have the same name: {', '.join(sorted(both))}")

    def document(self) -> dict[str, object]:
        """Return the JSON document: title, ok, the facts by name, and each table as a list of objects."""
        tables = {
            table.name: [dict(zip(table.columns, row, strict=True)) for row in table.rows]
            for table in self.tables
        }
        return {"title": self.title, "ok": self.ok, **self.facts, **tables}
