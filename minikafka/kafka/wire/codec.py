"""Requests and responses of all APIs, with their headers. `minikafka.kafka.messages` encodes and decodes the bodies.

Bodies are made from plain values, as `minikafka/kafka/messages/encoder.py` describes.
"""

from __future__ import annotations

from collections.abc import Generator
from struct import Struct
from typing import Any, Final

from minikafka.base.ports import Buffer
from minikafka.kafka.messages import decoder, encoder, table
from minikafka.kafka.messages.decoder import Entity, skip_tags
from minikafka.kafka.wire.primitives import INT32, NO_TAGS, string
from minikafka.kafka.wire.versions import API_VERSIONS

REQUEST_ELEMENTS_MAX: Final = 100_000
"""Limit of array elements and tagged fields in one request; requests of a small cluster stay far below it."""
RESPONSE_ELEMENTS_MAX: Final = 10_000_000

_THROTTLE_TIME: Final = "throttle_time_ms"
_REQUEST_HEADER: Final = Struct(">hhi")


def decode_request(api: int, version: int, view: Buffer) -> Entity:
    """Return the decoded body of a request.

    `view`: the request after the client id. Tagged fields of the request header are skipped.
    `api` and `version` must be served (`versions.is_served`). Raises ProtocolViolation for malformed bytes.
    """
    data = bytes(view)
    pos = skip_tags(data, 0) if is_flexible(api, version) else 0
    return decoder.decode(table.request(api), version, data, pos, REQUEST_ELEMENTS_MAX)


def decode_request_in_steps(api: int, version: int, view: Buffer) -> Generator[None, None, Entity]:
    """Do what `decode_request` does, as a generator that yields between steps. It does not copy the request."""
    pos = skip_tags(view, 0) if is_flexible(api, version) else 0
    return decoder.decode_in_steps(table.request(api), version, view, pos, REQUEST_ELEMENTS_MAX)


def decode_response(api: int, version: int, view: Buffer) -> Entity:
    """Return the decoded body of a response.

    `view`: the response without its length prefix; the first field is the correlation id. Raises
    ProtocolViolation for malformed bytes.
    """
    data = bytes(view)
    pos = skip_tags(data, 4) if has_flexible_response_header(api, version) else 4
    return decoder.decode(table.response(api), version, data, pos, RESPONSE_ELEMENTS_MAX)


def request(api: int, version: int, **values: Any) -> bytes:
    """Return the encoded body of a request. Raises TypeError for a field that no version has."""
    return encoder.encode(table.request(api), version, values)


def response(api: int, version: int, **values: Any) -> bytes:
    """Return the encoded body of a response. Raises TypeError for a field that no version has."""
    return encoder.encode(table.response(api), version, values)


def response_in_steps(api: int, version: int, **values: Any) -> Generator[int, None, bytes]:
    """Do what `response` does, as a generator that yields the number of encoded bytes between steps.

    Arrays of structures may be generators, which run while the response is encoded.
    """
    return encoder.encode_in_steps(table.response(api), version, values)


def encode_response(correlation: int, api: int, version: int, body: bytes) -> bytes:
    """Return a whole response frame, length prefix included."""
    head = INT32.pack(correlation)
    if has_flexible_response_header(api, version):
        head += NO_TAGS
    return b"".join((INT32.pack(len(head) + len(body)), head, body))


def with_throttle(api: int, version: int, body: bytes, throttle_ms: int) -> bytes:
    """Return the body of a response with this throttle time, if the response has it as its first field."""
    if not can_throttle(api) or version not in table.response(api).structure.fields[0].versions:
        return body
    return INT32.pack(throttle_ms) + body[INT32.size :]


def can_throttle(api: int) -> bool:
    """Return True if responses begin with a throttle time, from some version on."""
    return table.response(api).structure.fields[0].name == _THROTTLE_TIME


def encode_request(
    api: int, version: int, correlation: int, client_id: str | None, body: bytes
) -> bytes:
    """Return a whole request frame, length prefix included; the client id is never a compact string."""
    head = _REQUEST_HEADER.pack(api, version, correlation) + string(client_id)
    if is_flexible(api, version):
        head += NO_TAGS
    return b"".join((INT32.pack(len(head) + len(body)), head, body))


def is_flexible(api: int, version: int) -> bool:
    """Return True if body and request header have tagged fields (KIP-482). Raises KeyError for an unserved API."""
    return version in table.request(api).flexible


def has_flexible_response_header(api: int, version: int) -> bool:
    """Return True if tagged fields follow a response's correlation id; never for ApiVersions (KIP-511)."""
    return api != API_VERSIONS and is_flexible(api, version)
