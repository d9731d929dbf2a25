"""Client quotas: none exist.

DescribeClientQuotas 48, versions 0–1.
- The response is an empty list. Filters are checked as in Kafka: an entity type other than user, client-id and ip gets
  UNSUPPORTED_VERSION. An empty or repeated type, ip together with another type, and an unknown match type get
  INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.broker.services import Entity, Handler, RequestContext, Services
from minikafka.kafka.wire.codec import response
from minikafka.kafka.wire.versions import (
    DESCRIBE_CLIENT_QUOTAS,
)
from minikafka.security.operations import CLUSTER, DESCRIBE_CONFIGS, need

_QUOTAS: Final = need("DescribeClientQuotas", DESCRIBE_CONFIGS, CLUSTER)
_FILTERS: Final = {"user": "user", "client-id": "client", "ip": "ip"}
"""Entity type of a quota → its name in Kafka's error messages."""
_MATCH_TYPES: Final = range(3)
"""Exact name, default and any name."""


def describe_client_quotas(services: Services, request: Entity, context: RequestContext) -> bytes:
    """Return the response to a DescribeClientQuotas request."""
    result: dict[str, Any] = {"entries": []}
    try:
        services.access.check(context.connection, _QUOTAS)
        _check_filters(request.components)
    except KafkaError as error:
        result = {"error_code": error.code, "error_message": error.detail, "entries": None}
    return response(DESCRIBE_CLIENT_QUOTAS, context.version, **result)


def _check_filters(components: Sequence[Entity]) -> None:
    """Raise KafkaError at the first invalid filter. At most four are read: one per type, and a repeated one."""
    invalid = ErrorCode.INVALID_REQUEST
    seen: set[str] = set()
    for component in components:
        kind = component.entity_type
        if not kind:
            raise KafkaError(invalid, "Unexpected empty filter component entity type")
        if kind not in _FILTERS:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type '{kind}' not supported"
            )
        if kind in seen:
            raise KafkaError(invalid, f"Duplicate {_FILTERS[kind]} filter component entity type")
        if component.match_type not in _MATCH_TYPES:
            raise KafkaError(invalid, f"Unexpected match type: {component.match_type}")
        seen.add(kind)
    if "ip" in seen and len(seen) > 1:
        raise KafkaError(
            invalid,
            "Invalid entity filter component combination, IP filter component should not be used with "
            "user or clientId filter component.",
        )


HANDLERS: Final[dict[int, Handler]] = {
    DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
}
