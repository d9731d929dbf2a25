"""The administrator's side of ACLs: create, list and delete."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.client.administration.results import Outcome, read_outcome
from minikafka.client.metadata import Metadata
from minikafka.client.network import Network, request
from minikafka.client.retries import Retries
from minikafka.kafka.wire import versions
from minikafka.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
)


class AclAdmin:
    """The administrative requests about ACLs, available as `client.acls`. Any broker answers them."""

    def __init__(
        self, network: Network, metadata: Metadata, retries: Retries, request_timeout_ms: int
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._retries = retries
        self._timeout_ms = request_timeout_ms

    async def create(self, bindings: Iterable[AclBinding]) -> dict[AclBinding, Outcome]:
        """Create ACLs; return the outcome of each. An ACL that exists counts as created."""
        wanted = list(dict.fromkeys(bindings))
        body = request(versions.CREATE_ACLS, creations=list(map(_creation, wanted)))
        response = await self._ask(versions.CREATE_ACLS, body)
        return dict(zip(wanted, map(read_outcome, response.results), strict=True))

    async def describe(self, selection: AclFilter) -> list[AclBinding]:
        """Return the ACLs that a filter selects, sorted."""
        body = request(versions.DESCRIBE_ACLS, **_filter(selection))
        response = await self._ask(versions.DESCRIBE_ACLS, body)
        _raise_for(read_outcome(response))
        return sorted(
            AclBinding(_pattern(resource, resource.pattern_type), _entry(acl))
            for resource in response.resources
            for acl in resource.acls
        )

    async def delete(self, selections: Iterable[AclFilter]) -> dict[AclBinding, Outcome]:
        """Delete the ACLs that any of the filters selects; return the outcome of each.

        Raises KafkaError if the broker refuses a filter.
        """
        body = request(versions.DELETE_ACLS, filters=list(map(_filter, selections)))
        response = await self._ask(versions.DELETE_ACLS, body)
        found: dict[AclBinding, Outcome] = {}
        for result in response.filter_results:
            _raise_for(read_outcome(result))
            for acl in result.matching_acls:
                binding = AclBinding(_pattern(acl, acl.pattern_type), _entry(acl))
                found[binding] = read_outcome(acl)
        return found

    async def _ask(self, api: int, body: bytes) -> Any:
        async def attempt() -> Any:
            address = await self._metadata.any_address()
            return await self._network.call(address, api, self._timeout_ms, body)

        return await self._retries(attempt)


def _raise_for(outcome: Outcome) -> None:
    if outcome.code is not ErrorCode.NONE:
        raise KafkaError(outcome.code, outcome.reason)


def _creation(binding: AclBinding) -> dict[str, Any]:
    pattern, entry = binding
    return {
        "resource_type": pattern.type,
        "resource_name": pattern.name,
        "resource_pattern_type": pattern.pattern,
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation,
        "permission_type": entry.permission,
    }


def _filter(selection: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": selection.pattern.type,
        "resource_name_filter": selection.pattern.name,
        "pattern_type_filter": selection.pattern.pattern,
        "principal_filter": selection.principal,
        "host_filter": selection.host,
        "operation": selection.operation,
        "permission_type": selection.permission,
    }


def _pattern(found: Any, kind: int) -> ResourcePattern:
    return ResourcePattern(
        AclResourceType.of_number(found.resource_type),
        found.resource_name,
        PatternType.of_number(kind),
    )


def _entry(found: Any) -> AclEntry:
    return AclEntry(
        found.principal,
        found.host,
        AclOperation.of_number(found.operation),
        AclPermission.of_number(found.permission_type),
    )
