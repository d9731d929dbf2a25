"""The check of arguments that are collections: of names, partitions or other values of one type.

Python iterates over a str by its characters, and over a TopicPartition by its fields. Without this check, a single
value in the place of a collection would be read as other values: the group "g-x" as the groups "g", "-" and "x".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")


def several(kind: type[T], values: Iterable[T] | T) -> list[T]:
    """Return the values as a list; a single value becomes a list of one.

    Raises TypeError for a value of another type. A plain tuple may stand for a named tuple with as many fields.
    """
    if isinstance(values, kind):
        return [values]
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise _wrong(kind, values)
    return [_checked(kind, value) for value in values]


def _checked(kind: type[T], value: object) -> T:
    fields = getattr(kind, "_fields", ())
    if isinstance(value, tuple) and not isinstance(value, kind) and len(value) == len(fields):
        return kind(*value)
    if not isinstance(value, kind):
        raise _wrong(kind, value)
    return value


def _wrong(kind: type[T], value: object) -> TypeError:
    name = kind.__name__
    fields = ", ".join(getattr(kind, "_fields", ()))
    wanted = f"{name}({fields})" if fields else name
    return TypeError(f"expected {wanted}, or a list of these, got {value!r}")
