"""Encoding of control-plane bodies: msgpack maps with text keys, of limited size.

A partition in a LeaderAndIsr request takes 30 bytes plus the topic's name. So a body of `BODY_MAX_BYTES` has
room for `fields.ROWS_MAX` partitions.
"""

from __future__ import annotations

from typing import Any, Final

import msgpack

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.broker.rpc.fields import ROWS_MAX
from minikafka.broker.rpc.messages import CachedRows

BODY_MAX_BYTES: Final = 64 * 1024 * 1024
TEXT_MAX_BYTES: Final = 64 * 1024
MAP_MAX: Final = 1024


def pack(body: dict[str, Any]) -> bytes:
    """Encode a body as msgpack. Raises KafkaError(INVALID_REQUEST) if the result is too large."""
    packer = msgpack.Packer()
    pieces = [packer.pack_map_header(len(body))]
    for name, value in body.items():
        pieces.append(packer.pack(name))
        if not isinstance(value, CachedRows):
            pieces.append(packer.pack(value))
            continue
        if not value.packed:
            value.packed = packer.pack(value)
        pieces.append(value.packed)
    data = b"".join(pieces)
    if len(data) > BODY_MAX_BYTES:
        text = f"a body of {len(data)} bytes exceeds the maximum of {BODY_MAX_BYTES}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, text)
    return data


def unpack(data: bytes) -> dict[str, Any]:
    """Decode a body. Raises ValueError if it is not a map with text keys, or exceeds a limit."""
    body = msgpack.unpackb(
        data,
        strict_map_key=True,
        max_array_len=ROWS_MAX,
        max_map_len=MAP_MAX,
        max_str_len=TEXT_MAX_BYTES,
        max_bin_len=TEXT_MAX_BYTES,
        max_ext_len=0,
    )
    if not isinstance(body, dict) or not all(isinstance(key, str) for key in body):
        raise ValueError("not a map with text keys")
    return body
