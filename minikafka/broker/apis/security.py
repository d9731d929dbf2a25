"""SCRAM credentials and client quotas: none exist.

DescribeClientQuotas 48, versions 0–1.
- The response is an empty list. Filters are checked as in Kafka: an entity type other than user, client-id and ip gets
  UNSUPPORTED_VERSION. An empty or repeated type, ip together with another type, and an unknown match type get
  INVALID_REQUEST.

DescribeUserScramCredentials 50, version 0.
- A request for all users gets an empty list. A named user gets RESOURCE_NOT_FOUND, or DUPLICATE_RESOURCE if the request
  names the user twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.kafka.wire.codec import response, response_in_steps
from minikafka.kafka.wire.versions import (
    DESCRIBE_CLIENT_QUOTAS,
    DESCRIBE_USER_SCRAM_CREDENTIALS,
)
from minikafka.security.operations import CLUSTER, DESCRIBE, DESCRIBE_CONFIGS, need

_QUOTAS: Final = need("DescribeClientQuotas", DESCRIBE_CONFIGS, CLUSTER)
_CREDENTIALS: Final = need("DescribeUserScramCredentials", DESCRIBE, CLUSTER)
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


async def describe_user_scram_credentials(
    services: Services, request: Entity, context: RequestContext
) -> Steps:
    """Return the response to a DescribeUserScramCredentials request as `Steps`: one error for each named user."""
    if not services.access.allows(context.connection, _CREDENTIALS):
        denied = {"error_code": _CREDENTIALS.error, "error_message": _CREDENTIALS.message}
        rows = ({"user": user.name, **denied} for user in request.users or ())
        return response_in_steps(
            DESCRIBE_USER_SCRAM_CREDENTIALS, context.version, **denied, results=rows
        )
    counts: Counter[str] = Counter()
    async for user in services.pauses.each(request.users or ()):
        counts[user.name] += 1
    results = (_credentials(name, count) for name, count in counts.items())
    return response_in_steps(DESCRIBE_USER_SCRAM_CREDENTIALS, context.version, results=results)


def _credentials(user: str, count: int) -> dict[str, Any]:
    code = ErrorCode.RESOURCE_NOT_FOUND
    if not user:
        message = "Username must not be empty"
    elif count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = (
            f"Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
        )
    else:
        message = f"Attempt to describe a user credential that does not exist: {user}"
    return {"user": user, "error_code": code, "error_message": message, "credential_infos": ()}


HANDLERS: Final[dict[int, Handler]] = {
    DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
}
