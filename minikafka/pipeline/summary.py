"""The result of a pipeline, which the command prints as text or as one JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Fact: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True)
class Table:
    """Rows of a result; the columns are the keys of each row in JSON."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Fact, ...], ...]


@dataclass(frozen=True)
class Summary:
    """What a pipeline has done, and whether that is a success (exit code 0) or not (1).

    `facts`: values by name, in the order in which they are printed. Names are those of the JSON document; a
    person reads them with spaces in place of `_`. No fact may have the name of a table: the table would
    replace it in the document.
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
