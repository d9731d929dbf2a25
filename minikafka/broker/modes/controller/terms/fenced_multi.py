"""Writes to ZooKeeper that check the controller epoch.

Each write is one multi, and is recorded as one line of the ledger. Invariant: a write takes effect as a whole and
before the next controller is elected, or not at all.
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
from minikafka.base.ports import Check, Ledger, MultiOp, Stat, ZooKeeper
from minikafka.broker.modes.controller.terms.lines import write_line
from minikafka.ledger.record import WRITE


async def fenced_multi(
    zookeeper: ZooKeeper,
    ledger: Ledger,
    check: Check,
    operations: Sequence[MultiOp],
    *,
    generation: int | None = None,
    cause: str = "",
) -> list[Stat | None]:
    """Send `check` and `operations` in one multi; return the Stats of the operations.

    `check`: the check of the controller epoch. `cause`: id of the controller event that caused the write, for the
    ledger. Raises ControllerMoved if the check fails, CoordinationError.
    """
    try:
        stats = await zookeeper.multi([check, *operations], generation=generation)
    except CoordinationError as error:
        ledger.record(WRITE, cause, write_line(check, operations, error=error))
        if _is_fenced(error):
            raise ControllerMoved("another controller was elected") from error
        raise
    ledger.record(WRITE, cause, write_line(check, operations, stats=stats[1:]))
    return stats[1:]


def _is_fenced(error: CoordinationError) -> bool:
    """True if the multi failed because of its first operation, the check of the controller epoch."""
    return (
        isinstance(error, MultiFailed)
        and error.index == 0
        and isinstance(error.error, BadVersion | NoNode)
    )
