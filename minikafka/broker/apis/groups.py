"""Consumer groups, which are not served yet: no broker is a coordinator.

FindCoordinator 10, versions 0–4.
- COORDINATOR_NOT_AVAILABLE, which clients retry, for the key of any group or transaction; one key up to version 3,
  a list of keys from version 4 (KIP-699).
Deliberately ignored: the key type.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.broker.services import Entity, Handler, RequestContext, Services
from minikafka.wire.codec import response
from minikafka.wire.versions import FIND_COORDINATOR

_BATCHED_SINCE: Final = 4


def find_coordinator(services: Services, request: Entity, context: RequestContext) -> Entity:
    """Return the response to a FindCoordinator request."""
    nobody = {
        "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE,
        "error_message": "consumer groups and transactions are not served",
        "node_id": -1,
        "host": "",
        "port": -1,
    }
    if context.version < _BATCHED_SINCE:
        return response(FIND_COORDINATOR, context.version, **nobody)
    coordinators = [{**nobody, "key": key} for key in request.coordinator_keys]
    return response(FIND_COORDINATOR, context.version, coordinators=coordinators)


HANDLERS: Final[dict[int, Handler]] = {FIND_COORDINATOR: find_coordinator}
