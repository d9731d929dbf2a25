"""The one door through which administrators' requests write to ZooKeeper.

Invariant: every write is one multi that begins with the check of the controller's epoch, so that it has a
certain place among the elections, it is carried out as a whole or not at all, and the ledger tells of it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, Protocol

from minikafka.base.errors import (
    ControllerMoved,
    CoordinationError,
    ErrorCode,
    KafkaError,
    MultiFailed,
    NotConnected,
    OutcomeUnknown,
    StaleSession,
)
from minikafka.base.model import BrokerId
from minikafka.base.ports import Check, Coordination, Ledger, MultiOp
from minikafka.broker.zk_controller.lines import write_line
from minikafka.ledger.record import NOTHING, WRITE

logger = logging.getLogger(__name__)

CHECK: Final = 0
"""Place of the check in the multi; the operations given follow from 1."""


class Controller(Protocol):
    """Who rules the cluster, as this broker knows (`broker/zk_controller/`)."""

    @property
    def is_active(self) -> bool:
        """Whether this broker does."""

    @property
    def generation(self) -> int:
        """Session generation of its term."""

    @property
    def controller_id(self) -> BrokerId:
        """Who does; -1 when nobody."""

    def fence(self) -> Check:
        """The check that every write of the controller carries. Raises KafkaError(NOT_CONTROLLER)."""


async def fenced_multi(
    coordination: Coordination,
    ledger: Ledger,
    check: Check,
    operations: Sequence[MultiOp],
    generation: int | None = None,
) -> None:
    """One multi that begins with the check, and its line in the ledger. Raises CoordinationError."""
    try:
        stats = await coordination.multi([check, *operations], generation=generation)
    except CoordinationError as error:
        ledger.record(WRITE, "", write_line(check, operations, error=error))
        raise
    ledger.record(WRITE, "", write_line(check, operations, stats=stats[1:]))


class FencedWrites:
    """Writes of the active controller; another broker's are refused before they are sent."""

    def __init__(
        self, coordination: Coordination, controller: Controller, ledger: Ledger = NOTHING
    ) -> None:
        self._coordination = coordination
        self._controller = controller
        self._ledger = ledger

    async def write(self, operations: Sequence[MultiOp]) -> None:
        """Raises KafkaError(NOT_CONTROLLER), CoordinationError; OutcomeUnknown when it may be applied."""
        check = self._controller.fence()
        generation = self._controller.generation
        await fenced_multi(self._coordination, self._ledger, check, operations, generation)


def refusal(error: Exception, of: str) -> tuple[ErrorCode, str]:
    """(code, message) for the client whose write or read failed; `of` names what it was about, for the log."""
    if isinstance(error, KafkaError):
        return error.code, error.detail
    if isinstance(error, ControllerMoved | NotConnected | StaleSession) or (
        isinstance(error, MultiFailed) and error.index == CHECK
    ):
        return ErrorCode.NOT_CONTROLLER, NOT_CONTROLLER
    if isinstance(error, OutcomeUnknown):
        return ErrorCode.REQUEST_TIMED_OUT, "ZooKeeper's answer was lost; ask again"
    assert isinstance(error, CoordinationError)
    logger.warning("%s: ZooKeeper refused the request: %s", of, error)
    return ErrorCode.UNKNOWN_SERVER_ERROR, "ZooKeeper refused the request"


NOT_CONTROLLER: Final = "this broker is not the controller"
