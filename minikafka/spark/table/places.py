"""The directories of a table for values of partition columns, named as Spark and Hive name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_ESCAPED: Final = frozenset([*map(chr, range(0x20)), *"\"#%'*/:=?\\{[]^\x7f"])


def place_of(columns: Sequence[str], values: Sequence[str | None]) -> str:
    """Return the directory for the values of partition columns, such as `user=ann/day=2026-03-01`."""
    pairs = zip(columns, values, strict=True)
    return "/".join(
        f"{_escaped(name)}={_escaped(value) if value else _NULL}" for name, value in pairs
    )


def _escaped(text: str) -> str:
    return "".join(f"%{ord(sign):02X}" if sign in _ESCAPED else sign for sign in text)
