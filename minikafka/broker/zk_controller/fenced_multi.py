"""Writes that carry the check of the controller epoch: each one is a single multi, and one line of the ledger.

Invariant: a write is carried out before the election of the next controller or not at all, and always as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from minikafka.base.errors import (
    BadVersion,
    ControllerMoved,
    CoordinationError,
    MultiFailed,
    NoNode,
)
from minikafka.base.ports import Check, Coordination, Ledger, MultiOp, Stat
from minikafka.broker.zk_controller.lines import write_line
from minikafka.ledger.record import WRITE


async def fenced_multi(
    coordination: Coordination,
    ledger: Ledger,
    check: Check,
    operations: Sequence[MultiOp],
    *,
    generation: int | None = None,
    cause: str = "",
) -> list[Stat | None]:
    """Send one multi that begins with the check; return the Stats of the operations.

    `cause`: id of the controller event behind the write, for the ledger. Raises ControllerMoved when the check
    fails, CoordinationError.
    """
    try:
        stats = await coordination.multi([check, *operations], generation=generation)
    except CoordinationError as error:
        ledger.record(WRITE, cause, write_line(check, operations, error=error))
        if _is_fenced(error):
            raise ControllerMoved("another controller was elected") from error
        raise
    ledger.record(WRITE, cause, write_line(check, operations, stats=stats[1:]))
    return stats[1:]


def _is_fenced(error: CoordinationError) -> bool:
    """True if the check, the first operation, was refused because of the node's version."""
    return (
        isinstance(error, MultiFailed)
        and error.index == 0
        and isinstance(error.error, BadVersion | NoNode)
    )
