"""The filters of ACLs that the options of a command describe."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from minikafka.security.acls import (
    AclFilter,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternFilter,
    PatternType,
)
from minikafka.tools.cli.acls.options import NamedResource


def filters(
    resources: Sequence[NamedResource], kind: PatternType, principals: Iterable[str | None]
) -> list[AclFilter]:
    """Return a filter for each resource and principal. Without resources, the filters select every resource."""
    named = [PatternFilter(resource.type, resource.name, kind) for resource in resources]
    patterns = named or [PatternFilter(AclResourceType.ANY, None, PatternType.ANY)]
    return [
        AclFilter(pattern, principal, None, AclOperation.ANY, AclPermission.ANY)
        for pattern in patterns
        for principal in principals
    ]
