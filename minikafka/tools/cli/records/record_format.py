"""Formatting of records: the formats of kcat and rpk, the columns of Kafka's console consumer, and JSON.

Each `…_writer` returns a function from a record to the bytes to print for it.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeAlias

import minikafka.client as clients

Writer: TypeAlias = "Callable[[clients.ConsumedRecord], bytes]"

COLUMNS: Final = ("timestamp", "partition", "offset", "headers")
"""The column names for `--print`, in the order of Kafka's console consumer."""
_LETTERS: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t"}
_ESCAPE: Final = re.compile(rb"\\(?:x([0-9A-Fa-f]{1,2})|([0-9]{1,3})|(.))", re.DOTALL)
_TOKEN: Final = re.compile(r"%h\{((?:[^%}]|%.)*)\}|%(.)|([^%]+)|%$", re.DOTALL)


def unescape(text: str) -> bytes:
    r"""Return text as UTF-8, with escapes replaced as in kcat.

    \n \r \t; \xNN is a byte in hexadecimal, \NNN in decimal or, with a leading zero, in octal; any other
    character after a backslash stands for itself.
    """
    rest = text.encode(errors="surrogateescape")
    return _ESCAPE.sub(_unescaped, rest)


def _unescaped(match: re.Match[bytes]) -> bytes:
    hexadecimal, digits, other = match.groups()
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    if digits is not None:
        is_octal = digits.startswith(b"0") and not set(digits) & set(b"89")
        return bytes([int(digits, 8 if is_octal else 10) & 0xFF])
    return _LETTERS.get(other, other)


def format_writer(text: str) -> Writer:
    """Return a writer for a format such as `%o %s`. Raises ValueError for an unknown token."""
    parts = [_part(match) for match in _TOKEN.finditer(text)]
    return lambda record: b"".join([part(record) for part in parts])


def _part(match: re.Match[str]) -> Writer:
    inner, letter, literal = match.groups()
    if literal is not None:
        return _constant(unescape(literal))
    if inner is not None:
        return _headers_writer(inner)
    if letter in _TOKENS:
        return _TOKENS[letter]
    known = " ".join(f"%{token}" for token in sorted(_TOKENS, key=str.lower))
    raise ValueError(f"{match[0]!r} is not a token: use one of {known}")


def _constant(data: bytes) -> Writer:
    return lambda record: data


def _headers_writer(inner: str) -> Writer:
    """Return a writer for the token `%h{inner}`: the text `inner`, repeated for each header as in rpk.

    In `inner`, %k stands for the name of the header, and %v for the value.
    """
    tokens = {"%k": 0, "%v": 1}
    words = re.split(r"(%.)", inner, flags=re.DOTALL)
    parts = [tokens[word] if word in tokens else unescape(word) for word in words]

    def write(record: clients.ConsumedRecord) -> bytes:
        rows = [(name.encode(), value or b"") for name, value in record.headers]
        return b"".join(row[p] if isinstance(p, int) else p for row in rows for p in parts)

    return write


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _text(number: int) -> bytes:
    return b"%d" % number


def _header_list(record: clients.ConsumedRecord) -> bytes:
    return b",".join([name.encode() + b"=" + (value or b"") for name, value in record.headers])


_TOKENS: Final[Mapping[str, Writer]] = {
    "s": lambda record: record.value or b"",
    "S": lambda record: _text(_size(record.value)),
    "R": lambda record: _size(record.value).to_bytes(4, "big", signed=True),
    "v": lambda record: record.value or b"",
    "V": lambda record: _text(_size(record.value)),
    "k": lambda record: record.key or b"",
    "K": lambda record: _text(_size(record.key)),
    "h": _header_list,
    "H": lambda record: _text(len(record.headers)),
    "t": lambda record: record.topic.encode(),
    "p": lambda record: _text(record.partition),
    "o": lambda record: _text(record.offset),
    "T": lambda record: _text(record.timestamp),
    "d": lambda record: _text(record.timestamp),
    "%": lambda record: b"%",
}
"""The writer for each token. The tokens are those of kcat, and v, V, H and d of rpk."""


def line_writer(columns: Collection[str], delimiter: bytes | None) -> Writer:
    """Return a writer of lines: the columns, the key if there is a delimiter, and the value.

    The columns have the format of Kafka's console consumer. A tab follows each column.
    """
    parts = [_COLUMNS[name] for name in COLUMNS if name in columns]

    def write(record: clients.ConsumedRecord) -> bytes:
        head = b"".join([part(record) + b"\t" for part in parts])
        key = b"" if delimiter is None else (record.key or b"") + delimiter
        return head + key + (record.value or b"") + b"\n"

    return write


def _timestamp_column(record: clients.ConsumedRecord) -> bytes:
    return b"%sTime:%d" % (b"LogAppend" if record.has_append_time else b"Create", record.timestamp)


def _headers_column(record: clients.ConsumedRecord) -> bytes:
    rows = [
        name.encode() + b":" + (b"null" if value is None else value)
        for name, value in record.headers
    ]
    return b",".join(rows) or b"NO_HEADERS"


_COLUMNS: Final[Mapping[str, Writer]] = {
    "timestamp": _timestamp_column,
    "partition": lambda record: b"Partition:%d" % record.partition,
    "offset": lambda record: b"Offset:%d" % record.offset,
    "headers": _headers_column,
}


def write_json(record: clients.ConsumedRecord) -> bytes:
    """Return a line with one JSON object, in the form that `produce --json` reads.

    The fields `key` and `value` are strings or null. If the bytes are not UTF-8, the field is null, and
    `key_base64` or `value_base64` contains the bytes.
    """
    fields = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_json_bytes("key", record.key),
        **_json_bytes("value", record.value),
        "headers": [{"key": name, **_json_bytes("value", v)} for name, v in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _json_bytes(name: str, data: bytes | None) -> dict[str, Any]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {name: None, f"{name}_base64": base64.b64encode(data).decode()}
