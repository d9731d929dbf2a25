"""ACLs: who may do what with which resources.

DescribeAcls 29, CreateAcls 30 and DeleteAcls 31, versions 0–3.
- Any broker answers. The response to CreateAcls or DeleteAcls is sent when the ACLs are in ZooKeeper and have taken
  effect on this broker. Other brokers follow as soon as they have read the change.
- A resource name that is empty or has a slash, another name than `kafka-cluster` for the cluster, and unknown numbers
  of types, operations or permissions get INVALID_REQUEST. A principal that is not TYPE:NAME gets UNKNOWN_SERVER_ERROR.
- An ACL that two filters of DeleteAcls match is in the result of the first. A filter of the type MATCH, or without a
  name, finds the ACLs that this broker knows.
- The right is DESCRIBE on the cluster for DescribeAcls, ALTER for the others. Without an authorizer the response is
  SECURITY_DISABLED: for the request, for each ACL to create, or for each filter.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError, ProtocolViolation
from minikafka.broker.services import Entity, Handler, RequestContext, Services, Steps
from minikafka.kafka.messages.encoder import Row
from minikafka.kafka.wire.codec import response, response_in_steps
from minikafka.kafka.wire.versions import CREATE_ACLS, DELETE_ACLS, DESCRIBE_ACLS
from minikafka.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternFilter,
    PatternType,
    ResourcePattern,
    parse_principal,
)
from minikafka.security.authorizer import Authorizer
from minikafka.security.operations import ALTER, CLUSTER, DESCRIBE, need

logger = logging.getLogger(__name__)

_DESCRIBE: Final = need("DescribeAcls", DESCRIBE, CLUSTER)
_CREATE: Final = need("CreateAcls", ALTER, CLUSTER)
_DELETE: Final = need("DeleteAcls", ALTER, CLUSTER)
_DISABLED: Final = {
    "error_code": ErrorCode.SECURITY_DISABLED,
    "error_message": "No Authorizer is configured.",
}
_CREATED: Final = {"error_code": ErrorCode.NONE, "error_message": None}
_FAILED: Final = {"error_code": ErrorCode.UNKNOWN_SERVER_ERROR, "error_message": None}
_UNKNOWN: Final = 0
_PATTERNS_SINCE: Final = 1
_ANY: Final = 1
"""The number ANY in all enums."""


def describe_acls(services: Services, request: Entity, context: RequestContext) -> bytes | Steps:
    """Return the response to a DescribeAcls request, as `Steps` if there are ACLs."""
    authorizer = services.access.authorizer
    if authorizer is None:
        return _described(context, ErrorCode.SECURITY_DISABLED, f"{_NO_AUTHORIZER} on the broker")
    try:
        services.access.check(context.connection, _DESCRIBE)
    except KafkaError as error:
        return _described(context, error.code, error.detail)
    selection = _selection(request, request.pattern_type_filter, context.version)
    resources = _resources(authorizer.bindings(selection))
    return response_in_steps(DESCRIBE_ACLS, context.version, resources=resources)


_NO_AUTHORIZER: Final = "No Authorizer is configured"


def _described(context: RequestContext, code: int, message: str) -> bytes:
    return response(DESCRIBE_ACLS, context.version, error_code=code, error_message=message)


def _resources(bindings: Iterable[AclBinding]) -> Iterator[Row]:
    """Yield the row of each pattern with its ACLs. `bindings`: the ACLs of a pattern follow each other."""
    for pattern, group in groupby(bindings, key=lambda one: one.pattern):
        yield {
            "resource_type": pattern.type,
            "resource_name": pattern.name,
            "pattern_type": pattern.pattern,
            "acls": [_entry_row(entry) for entry in sorted(one.entry for one in group)],
        }


def _entry_row(entry: AclEntry) -> Row:
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def _selection(asked: Entity, pattern: int, version: int) -> AclFilter:
    """Return the filter in a DescribeAcls or DeleteAcls request. Raises ProtocolViolation as Kafka does."""
    numbers = asked.resource_type_filter, pattern, asked.operation, asked.permission_type
    if _UNKNOWN in numbers:
        raise ProtocolViolation("a filter of ACLs has an unknown type, operation or permission")
    kind = PatternType.of_number(pattern)
    if version < _PATTERNS_SINCE:
        kind = PatternType.LITERAL
    return AclFilter(
        PatternFilter(
            AclResourceType.of_number(asked.resource_type_filter), asked.resource_name_filter, kind
        ),
        asked.principal_filter,
        asked.host_filter,
        AclOperation.of_number(asked.operation),
        AclPermission.of_number(asked.permission_type),
    )


# ---- creation


async def create_acls(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to a CreateAcls request as `Steps`, with one result for each ACL."""
    results = await _create_all(services, request, context)
    return response_in_steps(CREATE_ACLS, context.version, results=results)


async def _create_all(
    services: Services, request: Entity, context: RequestContext
) -> Sequence[Row]:
    asked = request.creations
    if services.access.authorizer is None:
        return [_DISABLED] * len(asked)
    try:
        services.access.check(context.connection, _CREATE)
    except KafkaError as error:
        return [{"error_code": error.code, "error_message": error.detail}] * len(asked)
    if any(_UNKNOWN in _numbers(acl) for acl in asked):
        raise ProtocolViolation("CreateAcls has an unknown type, operation or permission")
    if not all(map(_is_specific, asked)):
        return [_FAILED] * len(asked)
    bindings = [_binding(acl) async for acl in services.pauses.each(asked)]
    results = {binding: _refusal(binding) for binding in bindings}
    wanted: defaultdict[ResourcePattern, set[AclEntry]] = defaultdict(set)
    failed = {binding.pattern for binding, refusal in results.items() if refusal is _FAILED}
    for binding, refusal in results.items():
        if refusal is None and binding.pattern not in failed:
            wanted[binding.pattern].add(binding.entry)
        elif refusal is None:  # as in Kafka, one invalid principal fails all ACLs of the pattern
            results[binding] = _FAILED
    for pattern, entries in wanted.items():
        outcome = await _create(services, pattern, frozenset(entries))
        results.update(dict.fromkeys((AclBinding(pattern, entry) for entry in entries), outcome))
    return [results[binding] or _CREATED for binding in bindings]


def _numbers(acl: Entity) -> tuple[int, int, int, int]:
    return acl.resource_type, acl.resource_pattern_type, acl.operation, acl.permission_type


def _is_specific(acl: Entity) -> bool:
    return _ANY not in _numbers(acl) and acl.resource_pattern_type != PatternType.MATCH


def _binding(acl: Entity) -> AclBinding:
    resource, pattern, operation, permission = _numbers(acl)
    return AclBinding(
        ResourcePattern(
            AclResourceType.of_number(resource), acl.resource_name, PatternType.of_number(pattern)
        ),
        AclEntry(
            acl.principal,
            acl.host,
            AclOperation.of_number(operation),
            AclPermission.of_number(permission),
        ),
    )


def _refusal(binding: AclBinding) -> Row | None:
    """Return the error of an ACL that is not valid, None for a valid ACL."""
    pattern, entry = binding
    message = None
    if pattern.type is AclResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        message = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not pattern.name:
        message = "Invalid empty resource name"
    elif "/" in pattern.name or 0 in (*pattern, entry.operation, entry.permission):
        message = "Failed to create ACL"
    if message is not None:
        return {"error_code": ErrorCode.INVALID_REQUEST, "error_message": message}
    try:
        parse_principal(entry.principal)
    except ValueError as error:
        logger.info("an ACL was not created: %s", error)
        return _FAILED
    return None


async def _create(
    services: Services, pattern: ResourcePattern, entries: frozenset[AclEntry]
) -> Row:
    error = await _alter(services, pattern, lambda before: before | entries)
    return _CREATED if error is None else error


async def _alter(services: Services, pattern: ResourcePattern, change: Any) -> Row | None:
    """Change the ACLs of a pattern; return the error, None on success."""
    try:
        await services.acls.alter(pattern, change)
    except (KafkaError, CoordinationError, ValueError) as error:
        logger.warning("the ACLs of %s cannot be changed: %s", pattern, error)
        return _FAILED
    return None


# ---- deletion


async def delete_acls(services: Services, request: Entity, context: RequestContext) -> Steps:
    """Return the response to a DeleteAcls request as `Steps`, with one result for each filter."""
    authorizer = services.access.authorizer
    if authorizer is None:
        results: Sequence[Row] = [{**_DISABLED, "matching_acls": ()}] * len(request.filters)
    else:
        results = await _delete_all(services, authorizer, request, context)
    return response_in_steps(DELETE_ACLS, context.version, filter_results=results)


async def _delete_all(
    services: Services, authorizer: Authorizer, request: Entity, context: RequestContext
) -> Sequence[Row]:
    try:
        services.access.check(context.connection, _DELETE)
    except KafkaError as error:
        failed = {"error_code": error.code, "error_message": error.detail, "matching_acls": ()}
        return [failed] * len(request.filters)
    selections = [
        _selection(asked, asked.pattern_type_filter, context.version) for asked in request.filters
    ]
    found: list[list[Row]] = [[] for _ in selections]
    named = [one for selection in selections for one in selection.pattern.candidates()]
    patterns = dict.fromkeys((*authorizer.patterns(), *named))
    async for pattern in services.pauses.each(patterns):
        deletion = AclDeletion(pattern, selections)
        if deletion.filters:
            outcome = await _alter(services, pattern, deletion.remaining)
            for entry, number in deletion.deleted.items():
                found[number].append(_deleted_row(pattern, entry, outcome))
    return [{"error_code": ErrorCode.NONE, "matching_acls": rows} for rows in found]


class AclDeletion:
    """The deletion of the ACLs of one pattern that any of the filters selects.

    `filters`: (number, filter) of the filters that select the pattern. `deleted`: the number of the first filter that
    selects each deleted entry.
    """

    def __init__(self, pattern: ResourcePattern, selections: Sequence[AclFilter]) -> None:
        self.filters = [
            (number, one) for number, one in enumerate(selections) if one.pattern.matches(pattern)
        ]
        self.deleted: dict[AclEntry, int] = {}

    def remaining(self, before: frozenset[AclEntry]) -> frozenset[AclEntry]:
        """Return the entries that no filter selects."""
        self.deleted = {}
        for number, one in self.filters:
            for entry in sorted(before - self.deleted.keys()):
                if one.matches_entry(entry):
                    self.deleted[entry] = number
        return before - self.deleted.keys()


def _deleted_row(pattern: ResourcePattern, entry: AclEntry, error: Row | None) -> Row:
    return {
        **(error or _CREATED),
        "resource_type": pattern.type,
        "resource_name": pattern.name,
        "pattern_type": pattern.pattern,
        **_entry_row(entry),
    }


HANDLERS: Final[dict[int, Handler]] = {
    DESCRIBE_ACLS: describe_acls,
    CREATE_ACLS: create_acls,
    DELETE_ACLS: delete_acls,
}
