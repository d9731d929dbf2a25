"""Varints: numbers in groups of 7 bits, least significant first. Bit 8 of a byte is set if another byte follows.

Fields of records hold signed numbers, zigzag-encoded. Lengths in flexible versions of requests, and in snappy blocks,
are unsigned.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import CorruptBatch, MinikafkaError, ProtocolViolation
from minikafka.base.ports import Buffer

_ONE_BYTE: Final = tuple(bytes((number,)) for number in range(128))


def uvarint(number: int) -> bytes:
    """Return an unsigned number as a varint."""
    if number < 128:
        return _ONE_BYTE[number]
    out = bytearray()
    while number > 127:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def varint(number: int) -> bytes:
    """Return a signed 64-bit number as a zigzag varint, as used for every length and delta in a record."""
    return uvarint((number << 1) ^ (number >> 63))


def read_uvarint(
    buf: Buffer, pos: int, bits: int = 32, error: type[MinikafkaError] = ProtocolViolation
) -> tuple[int, int]:
    """Read an unsigned varint of at most `bits` bits; return its value and the position after it. Raises `error`."""
    try:
        byte = buf[pos]
        pos += 1
        if byte < 128:
            return byte, pos
        number = byte & 0x7F
        shift = 7
        while shift < bits:
            byte = buf[pos]
            pos += 1
            number |= (byte & 0x7F) << shift
            if byte < 128 and not number >> bits:
                return number, pos
            shift += 7
    except IndexError:
        pass
    raise error(f"a varint is cut off or exceeds {bits} bits")


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """Read a zigzag varint of a record; return its value and the position after it.

    Raises CorruptBatch if the varint is cut off or has more than ten bytes.
    """
    if pos < len(buf) and (byte := buf[pos]) < 128:  # one byte: saves a call, a third of the time
        return (byte >> 1) ^ -(byte & 1), pos + 1
    number, pos = read_uvarint(buf, pos, 70, CorruptBatch)
    return (number >> 1) ^ -(number & 1), pos
