"""Random Avro schemas, and random records of them in every form that the binary encoding allows."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

LONGS = (0, -1, 1, 63, 64, -65, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1, -(2**63))
FLOATS = (0.0, -0.0, 1.5, float("nan"), float("inf"), 1e300, 5e-324, 3.4e38)
TEXTS = ("", "a", "bolt", "ß" * 40, "\U0001f600", "x" * 70)
LOGICAL = {
    "int": ("date", "time-millis"),
    "long": (
        "timestamp-millis",
        "timestamp-micros",
        "local-timestamp-millis",
        "local-timestamp-micros",
    ),
}


class Schemas:
    """Random schemas. `is_usual`: without unions of several types, which are decoded one by one."""

    def __init__(self, seed: int, *, is_usual: bool = True) -> None:
        self.rng = random.Random(seed)
        self.is_usual = is_usual
        self.named: list[str] = []

    def record(self, depth: int = 3) -> dict[str, Any]:
        name = f"R{len(self.named)}"
        self.named.append(name)
        fields = [self._field(f"f{index}", depth) for index in range(self.rng.randint(1, 5))]
        return {"type": "record", "name": name, "fields": fields}

    def _field(self, name: str, depth: int) -> dict[str, Any]:
        return {"name": name, "type": self._type(depth - 1)}

    def _type(self, depth: int) -> Any:
        kinds = [
            "int",
            "long",
            "float",
            "double",
            "boolean",
            "string",
            "bytes",
            "logical",
            "decimal",
            "enum",
            "fixed",
        ]
        nested = ["optional", "array", "map", "record", *([] if self.is_usual else ["union"])]
        kind = self.rng.choice(kinds + (nested * 2 if depth > 0 else []))
        make: dict[str, Callable[[], Any]] = {
            "logical": self._logical,
            "decimal": self._decimal,
            "enum": lambda: self._definition("E", {"type": "enum", "symbols": ["A", "B", "C"]}),
            "fixed": lambda: self._definition(
                "F", {"type": "fixed", "size": self.rng.randint(0, 9)}
            ),
            "optional": lambda: self._optional(depth),
            "array": lambda: {"type": "array", "items": self._type(depth - 1)},
            "map": lambda: {"type": "map", "values": self._type(depth - 1)},
            "record": lambda: self.record(depth),
            "union": lambda: ["null", "string", "long", {"type": "array", "items": "int"}],
        }
        return make[kind]() if kind in make else kind

    def _optional(self, depth: int) -> Any:
        found = self._type(depth - 1)
        while isinstance(found, list):
            found = self._type(depth - 1)
        return self.rng.choice((["null", found], [found, "null"]))

    def _definition(self, letter: str, schema: dict[str, Any]) -> dict[str, Any]:
        self.named.append(f"{letter}{len(self.named)}")
        return schema | {"name": self.named[-1]}

    def _logical(self) -> Any:
        kind = self.rng.choice(("int", "long"))
        return {"type": kind, "logicalType": self.rng.choice(LOGICAL[kind])}

    def _decimal(self) -> Any:
        digits = self.rng.choice((1, 4, 9, 18, 19, 38))
        base = {"logicalType": "decimal", "precision": digits, "scale": self.rng.randint(0, digits)}
        if self.rng.random() < 0.5:
            return {"type": "bytes", **base}
        return self._definition(
            "D",
            {
                "type": "fixed",
                "size": self.rng.choice((4, 16, 17) if digits <= 9 else (16, 17)),
                **base,
            },
        )


class Bytes:
    """Random values of a schema, in the binary encoding of Avro: also with blocks of every form.

    `with_far_times`: also times and dates that Python does not have.
    """

    def __init__(self, rng: random.Random, *, with_far_times: bool = True) -> None:
        self.rng = rng
        self.with_far_times = with_far_times

    def of(self, schema: Any) -> bytes:
        if isinstance(schema, list):
            index = self.rng.randrange(len(schema))
            return varint(index) + self.of(schema[index])
        kind = schema if isinstance(schema, str) else schema["type"]
        found: bytes = getattr(self, f"_{kind}")(schema)
        return found

    def _null(self, _: Any) -> bytes:
        return b""

    def _int(self, schema: Any) -> bytes:
        if isinstance(schema, dict) and not self.with_far_times:
            return varint(self.rng.randrange(-700_000, 2_900_000))
        return varint(self.rng.choice([one for one in LONGS if -(2**31) <= one < 2**31]))

    def _long(self, schema: Any) -> bytes:
        is_time = isinstance(schema, dict) and (not self.with_far_times or self.rng.random() < 0.8)
        return varint(self.rng.randrange(-(2**45), 2**45) if is_time else self.rng.choice(LONGS))

    def _float(self, _: Any) -> bytes:
        return struct.pack("<f", self.rng.choice([one for one in FLOATS if one != 1e300]))

    def _double(self, _: Any) -> bytes:
        return struct.pack("<d", self.rng.choice(FLOATS))

    def _boolean(self, _: Any) -> bytes:
        return self.rng.choice((b"\0", b"\1"))

    def _string(self, _: Any) -> bytes:
        data = self.rng.choice(TEXTS).encode()
        return varint(len(data)) + data

    def _bytes(self, schema: Any) -> bytes:
        if isinstance(schema, dict):
            data = self._decimal(schema, 16)
            data = (
                data.lstrip(b"\0")
                if data[0] == 0 and self.rng.random() < 0.2 and data.lstrip(b"\0")[:1] < b"\x80"
                else data
            )
        else:
            data = self.rng.randbytes(self.rng.randint(0, 20))
        return varint(len(data)) + data

    def _fixed(self, schema: Any) -> bytes:
        if "logicalType" in schema:
            return self._decimal(schema, schema["size"])
        return self.rng.randbytes(schema["size"])

    def _decimal(self, schema: Any, size: int) -> bytes:
        most = min(10 ** schema["precision"], 2 ** (8 * size - 1)) - 1
        return self.rng.choice((0, 1, -1, most, -most, most // 3)).to_bytes(
            size, "big", signed=True
        )

    def _enum(self, schema: Any) -> bytes:
        return varint(self.rng.randrange(len(schema["symbols"])))

    def _record(self, schema: Any) -> bytes:
        return b"".join(self.of(one["type"]) for one in schema["fields"])

    def _array(self, schema: Any) -> bytes:
        return self._blocks(
            [self.of(schema["items"]) for _ in range(self.rng.choice((0, 1, 2, 5)))]
        )

    def _map(self, schema: Any) -> bytes:
        keys = [
            varint(len(key)) + key for key in (b"k", b"", b"kk", b"k3")[: self.rng.randint(0, 4)]
        ]
        return self._blocks([key + self.of(schema["values"]) for key in keys])

    def _blocks(self, items: list[bytes]) -> bytes:
        found = b""
        while items:
            count = self.rng.randint(1, len(items))
            block, items = b"".join(items[:count]), items[count:]
            is_sized = self.rng.random() < 0.3
            found += (varint(-count) + varint(len(block)) if is_sized else varint(count)) + block
        return found + b"\0"


def varint(number: int) -> bytes:
    raw, found = (number << 1) ^ (number >> 63), bytearray()
    while raw > 0x7F:
        found.append(raw & 0x7F | 0x80)
        raw >>= 7
    return bytes([*found, raw])


def evolved(schema: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a later version of a record: fields are dropped, new, in another order, of a wider type, or optional."""
    wider = {"int": ["long", "double"], "long": ["double"], "float": ["double"]}
    fields = []
    for one in schema["fields"]:
        kind = one["type"]
        if rng.random() < 0.2:
            continue
        if isinstance(kind, str) and kind in wider and rng.random() < 0.5:
            kind = rng.choice(wider[kind])
        elif isinstance(kind, dict) and kind["type"] == "record":
            kind = evolved(kind, rng)
        if not isinstance(kind, list) and rng.random() < 0.3:
            kind = ["null", kind]
        fields.append({"name": one["name"], "type": kind})
    more = [
        {"name": "n0", "type": "string", "default": "?"},
        {"name": "n1", "type": ["null", "int"], "default": None},
        {"name": "n2", "type": {"type": "array", "items": "int"}, "default": [1, 2]},
        {"name": "n3", "type": {"type": "map", "values": "long"}, "default": {"a": 1}},
    ]
    fields += rng.sample(more, rng.randint(0, 2)) or more[:1]
    rng.shuffle(fields)
    return {**schema, "fields": fields}


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return a record that is cut, longer or changed."""
    kind = rng.randrange(4)
    if kind == 0:
        return data[: rng.randint(5, max(5, len(data) - 1))]
    if kind == 1:
        return data + rng.randbytes(rng.randint(1, 12))
    if kind == 2 or len(data) == 5:
        return data[:5] + rng.randbytes(rng.randint(0, 30))
    place = rng.randrange(5, len(data))
    return data[:place] + rng.choice((b"\xff", b"\x80", b"\0", b"\x7f")) + data[place + 1 :]
