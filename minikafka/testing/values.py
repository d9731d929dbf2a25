"""What `produce` accepts as records, and how records look in messages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from minikafka.client import ConsumedRecord, Record
from minikafka.kafka.records.batch import UNDATED

Text: TypeAlias = bytes | str | None
Value: TypeAlias = Text | Record | tuple[Text, Text]
Headers: TypeAlias = Mapping[str, Text] | Iterable[tuple[str, Text]]
SHOWN_MAX: Final = 10
"""Maximum number of records in a message."""
_TEXT_MAX: Final = 60


def to_records(
    values: Iterable[Value | list[Value]],
    key: Text = None,
    headers: Headers = (),
    timestamp: int | None = None,
) -> list[Record]:
    """Return records of these values; key, headers and timestamp are for values that have none of their own.

    A value is bytes, a str (UTF-8), None (a tombstone), a pair of key and value, a Record, or a list of these. Raises
    TypeError.
    """
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    own = tuple((name, _encoded(value, "the value of a header")) for name, value in pairs)
    when = UNDATED if timestamp is None else timestamp
    found = []
    for value in _flat(values):
        if isinstance(value, Record):
            found.append(value)
            continue
        its_key, content = value if isinstance(value, tuple) else (key, value)
        found.append(
            Record(
                timestamp=when,
                key=_encoded(its_key, "a key"),
                value=_encoded(content, "a value"),
                headers=own,
            )
        )
    return found


def _flat(values: Iterable[Value | list[Value]]) -> Iterator[Value]:
    for value in values:
        if isinstance(value, list):
            yield from value
        elif isinstance(value, tuple) and not isinstance(value, Record) and len(value) != 2:
            text = f"a tuple must be a pair of key and value, not {value!r}"
            raise TypeError(f"{text}: pass several values as arguments or as a list")
        else:
            yield value


def _encoded(value: object, what: str) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    text = f"{what} must be bytes, str or None, not {type(value).__name__}"
    raise TypeError(f"{text}: encode it first, for example with json.dumps")


def shown(records: list[ConsumedRecord]) -> str:
    """Return the records as lines of text, at most `SHOWN_MAX` of them."""
    lines = [
        f"\n  partition {one.partition} offset {one.offset}: key {_short(one.key)}, value {_short(one.value)}"
        for one in records[:SHOWN_MAX]
    ]
    more = len(records) - SHOWN_MAX
    return "".join([*lines, f"\n  … and {more} more"] if more > 0 else lines)


def _short(value: bytes | None) -> str:
    text = repr(value)
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}… ({len(value or b'')} bytes)"
