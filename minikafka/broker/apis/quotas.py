"""Quotas of users, client ids and addresses.

DescribeClientQuotas 48, versions 0–1.
- Filters are checked as in Kafka: an entity type other than user, client-id and ip gets UNSUPPORTED_VERSION.
  INVALID_REQUEST for a type that is empty or given twice, for a match type other than 0, 1 and 2, and for ip together
  with user or client-id.

AlterClientQuotas 49, versions 0–1.
- Every broker may alter quotas. The quotas of one entity are written as a whole or not at all, with Kafka's errors.
- INVALID_REQUEST for a quota below 0 and for an address that is a host name. (Kafka stores a quota below 0, which has
  no effect, and looks up host names.)
- A quota of 0 bytes lets a client wait for 24 days after each request. (In Kafka it has no effect.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.broker.admin.quotas import (
    ANY,
    CLIENT_ID,
    IP,
    USER,
    Filter,
    QuotaAlteration,
    QuotaResult,
)
from minikafka.broker.admin.refusals import refusal
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.kafka.wire.codec import response_in_steps
from minikafka.kafka.wire.versions import ALTER_CLIENT_QUOTAS, DESCRIBE_CLIENT_QUOTAS
from minikafka.security.operations import ALTER_CONFIGS, CLUSTER, DESCRIBE_CONFIGS, need
from minikafka.security.quotas import DEFAULT, QuotaEntity

_DESCRIBE: Final = need("DescribeClientQuotas", DESCRIBE_CONFIGS, CLUSTER)
_ALTER: Final = need("AlterClientQuotas", ALTER_CONFIGS, CLUSTER)
_FILTERS: Final = {USER: "user", CLIENT_ID: "client", IP: "ip"}
"""Entity type of a quota → its name in Kafka's error messages."""
_EXACT, _DEFAULT, _ANY = range(3)
_MATCH_TYPES: Final = (_EXACT, _DEFAULT, _ANY)


async def describe_client_quotas(
    services: Services, request: Entity, context: RequestContext
) -> Steps:
    """Return the response to a DescribeClientQuotas request as `Steps`: one entry for each owner of quotas."""
    try:
        services.access.check(context.connection, _DESCRIBE)
        wanted = _filter(request.components, is_strict=request.strict)
        found = await services.admin.quotas.described(wanted)
    except (KafkaError, CoordinationError) as error:
        code, message = refusal(error, "description of quotas")
        failed = {"error_code": code, "error_message": message, "entries": None}
        return response_in_steps(DESCRIBE_CLIENT_QUOTAS, context.version, **failed)
    entries = (_entry(owner, values) for owner, values in found)
    return response_in_steps(DESCRIBE_CLIENT_QUOTAS, context.version, entries=entries)


def _entry(owner: QuotaEntity, values: Mapping[str, float]) -> dict[str, Any]:
    parts = zip((USER, CLIENT_ID, IP), owner, strict=True)
    return {
        "entity": [
            {"entity_type": kind, "entity_name": None if name is DEFAULT else name}
            for kind, name in parts
            if name is not None
        ],
        "values": [{"key": key, "value": value} for key, value in values.items()],
    }


def _filter(components: Sequence[Entity], *, is_strict: bool) -> Filter:
    _check_filters(components)
    matches: dict[str, str | object] = {}
    for component in components:
        if component.match_type == _ANY:
            matches[component.entity_type] = ANY
        else:
            is_default = component.match_type == _DEFAULT
            matches[component.entity_type] = DEFAULT if is_default else component.match
    return Filter((matches.get(USER), matches.get(CLIENT_ID), matches.get(IP)), is_strict)


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
    if IP in seen and len(seen) > 1:
        raise KafkaError(
            invalid,
            "Invalid entity filter component combination, IP filter component should not be used with "
            "user or clientId filter component.",
        )


async def alter_client_quotas(
    services: Services, request: Entity, context: RequestContext
) -> Steps:
    """Return the response to an AlterClientQuotas request as `Steps`: one result for each entity."""
    alterations = [_alteration(entry) async for entry in services.pauses.each(request.entries)]
    if services.access.allows(context.connection, _ALTER):
        admin = services.admin.quotas
        results = await admin.alter(alterations, validate_only=request.validate_only)
    else:
        results = [QuotaResult(one.entity, _ALTER.error, _ALTER.message) for one in alterations]
    entries = (_result(result) for result in results)
    return response_in_steps(ALTER_CLIENT_QUOTAS, context.version, entries=entries)


def _alteration(entry: Entity) -> QuotaAlteration:
    return QuotaAlteration(
        tuple((part.entity_type, part.entity_name) for part in entry.entity),
        tuple((op.key, None if op.remove else op.value) for op in entry.ops),
    )


def _result(result: QuotaResult) -> dict[str, Any]:
    return {
        "error_code": result.error,
        "error_message": result.message,
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in result.entity],
    }


HANDLERS: Final[dict[int, Handler]] = {
    DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
    ALTER_CLIENT_QUOTAS: alter_client_quotas,
}
