"""Access control lists: there is no authorizer, so every client may do everything.

DescribeAcls 29, versions 0–3.
- The response is SECURITY_DISABLED, as in Kafka without an authorizer.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.broker.requests.services import Entity, Handler, RequestContext, Services
from minikafka.wire.codec import response
from minikafka.wire.versions import DESCRIBE_ACLS


def describe_acls(services: Services, request: Entity, context: RequestContext) -> Entity:
    """Return the response to a DescribeAcls request."""
    return response(
        DESCRIBE_ACLS,
        context.version,
        error_code=ErrorCode.SECURITY_DISABLED,
        error_message="No Authorizer is configured on the broker",
    )


HANDLERS: Final[dict[int, Handler]] = {DESCRIBE_ACLS: describe_acls}
