"""Idempotent producers: the id under which a partition remembers what it was sent (KIP-98, KIP-360).

InitProducerId 22, versions 0–4.
- Without a transactional id: a producer id no one else has, with epoch 0, on any broker. A producer
  that brings its old id and epoch (version 3 on) gets a new id: its sequences begin anew, and none of
  its unacknowledged batches can be taken for another's.
- With a transactional id: COORDINATOR_NOT_AVAILABLE, as for FindCoordinator; an empty one is
  INVALID_REQUEST.
- ZooKeeper out of reach: COORDINATOR_NOT_AVAILABLE, which producers retry.
Knowingly ignored: the transaction timeout, which arrives as -1, 0 or the largest int.
"""

from __future__ import annotations

import logging
from typing import Final

from minikafka.base.errors import CoordinationError, ErrorCode
from minikafka.broker.services import Entity, Handler, Services
from minikafka.wire.codec import response
from minikafka.wire.versions import INIT_PRODUCER_ID

logger = logging.getLogger(__name__)


async def init_producer_id(services: Services, request: Entity, version: int) -> Entity:
    """Handle InitProducerId."""
    if request.transactional_id is not None:
        empty = request.transactional_id == ""
        code = ErrorCode.INVALID_REQUEST if empty else ErrorCode.COORDINATOR_NOT_AVAILABLE
        return _refused(version, code)
    try:
        producer_id = await services.producer_ids.next()
    except CoordinationError as error:
        logger.warning("no producer id: %s: %s", type(error).__name__, error)
        return _refused(version, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return response(INIT_PRODUCER_ID, version, producer_id=producer_id, producer_epoch=0)


def _refused(version: int, code: ErrorCode) -> Entity:
    return response(INIT_PRODUCER_ID, version, error_code=code, producer_id=-1, producer_epoch=-1)


HANDLERS: Final[dict[int, Handler]] = {INIT_PRODUCER_ID: init_producer_id}
