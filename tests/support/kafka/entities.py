"""Decoded requests for tests of handlers."""

from __future__ import annotations

from typing import Any

from minikafka.kafka.wire import codec
from minikafka.kafka.wire.codec import is_flexible


def entity(api: int, version: int, **values: Any) -> Any:
    """Return a request with these values as a handler gets it."""
    tags = b"\0" if is_flexible(api, version) else b""
    return codec.decode_request(api, version, tags + codec.request(api, version, **values))
