"""Consumer groups, which are not served yet: no broker is a coordinator.

FindCoordinator 10, versions 0–4.
- COORDINATOR_NOT_AVAILABLE, which clients retry, for any group; one key up to version 3, a list of keys from
  version 4 (KIP-699).
- INVALID_REQUEST, with which clients give up at once, for a transactional id (key type 1) and for unknown key types.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.broker.services import Entity, Handler, RequestContext, Services
from minikafka.wire.codec import response
from minikafka.wire.versions import FIND_COORDINATOR

_BATCHED_SINCE: Final = 4
_GROUP: Final = 0
"""Key type of a consumer group, the only one before version 1."""
_TRANSACTION: Final = 1


def find_coordinator(services: Services, request: Entity, context: RequestContext) -> Entity:
    """Return the response to a FindCoordinator request."""
    code, message = _refusal(getattr(request, "key_type", _GROUP))
    nobody = {
        "error_code": code,
        "error_message": message,
        "node_id": -1,
        "host": "",
        "port": -1,
    }
    if context.version < _BATCHED_SINCE:
        return response(FIND_COORDINATOR, context.version, **nobody)
    coordinators = [{**nobody, "key": key} for key in request.coordinator_keys]
    return response(FIND_COORDINATOR, context.version, coordinators=coordinators)


def _refusal(key_type: int) -> tuple[ErrorCode, str]:
    if key_type == _GROUP:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, "consumer groups are not served"
    if key_type == _TRANSACTION:
        return ErrorCode.INVALID_REQUEST, "transactions are not served"
    return ErrorCode.INVALID_REQUEST, f"coordinator key type {key_type} is unknown"


HANDLERS: Final[dict[int, Handler]] = {FIND_COORDINATOR: find_coordinator}
