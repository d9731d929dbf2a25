"""The version of a request between brokers, which stands in the request's body.

A request of version 0.1 names no version, because release 0.1.0 demands exactly its own keys in a body. The calls of
commands do not name one either. An answer has the version of its request.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import Broker
from minikafka.base.protocol_versions import (
    UNVERSIONED,
    VERSIONS,
    Versions,
    common_version,
    mismatch,
    parse_version,
)
from minikafka.broker.rpc.fields import Body, invalid

_VERSION: Final = "version"


def version_for(own: Versions, broker: Broker) -> str:
    """Return the version of requests to a broker. `own`: the versions of the sender.

    Raises KafkaError UNSUPPORTED_VERSION if they have none in common.
    """
    version = common_version(own, broker.versions)
    if version is None:
        text = mismatch("this broker", own, f"broker {broker.id}", broker.versions)
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    return version


def with_version(body: Body, version: str) -> Body:
    """Return the body of a request in this version."""
    return body if version == UNVERSIONED else {_VERSION: version, **body}


def without_version(body: Body, sender: str, own_id: int) -> Body:
    """Return the body of a received request without its version.

    `sender`: id of the sending broker. Raises KafkaError UNSUPPORTED_VERSION if this broker has not this version.
    """
    if _VERSION not in body:
        return body
    try:
        version = parse_version(body[_VERSION])
    except ValueError as fault:
        raise invalid(str(fault)) from None
    if version not in VERSIONS:
        text = mismatch(f"broker {own_id}", VERSIONS, f"broker {sender}", (version,))
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
    return {name: value for name, value in body.items() if name != _VERSION}
