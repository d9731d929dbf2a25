"""Controller election: `/controller` names the active controller (A7), `/controller_epoch` counts elections (A8)."""

from __future__ import annotations

from typing import Final, NamedTuple

from minikafka.base.errors import NodeExists, NoNode, OutcomeUnknown
from minikafka.base.model import BrokerId
from minikafka.base.ports import Check, Coordination, Create, Delete, MultiOp, Set, Stat
from minikafka.zk import layout

CONTROLLER: Final = layout.CONTROLLER
"""Ephemeral; it exists while there is an active controller."""
EPOCH: Final = layout.CONTROLLER_EPOCH
"""Persistent; its version is what every write of the controller checks."""


class ActiveController(NamedTuple):
    """The active controller, and the Stat of the node that names it."""

    broker_id: BrokerId
    stat: Stat


def fence(version: int) -> Check:
    """Return the check that no later controller was elected since `/controller_epoch` had this version (R2)."""
    return Check(layout.CONTROLLER_EPOCH, version)


def candidacy(broker_id: BrokerId, epoch: int, version: int, wall_ms: int) -> list[MultiOp]:
    """Return the operations of one multi that elects the broker (R1).

    `version`: the version of `/controller_epoch` before the election.
    """
    return [
        Create(layout.CONTROLLER, layout.encode_controller(broker_id, wall_ms), ephemeral=True),
        fence(version),
        Set(layout.CONTROLLER_EPOCH, str(epoch).encode(), version),
    ]


def resignation(controller_version: int, epoch_version: int) -> list[MultiOp]:
    """Return the operations of one multi that deletes `/controller` if both nodes have these versions."""
    return [fence(epoch_version), Delete(layout.CONTROLLER, controller_version)]


async def read_controller(coordination: Coordination) -> ActiveController | None:
    """Return the active controller, None if there is none.

    Raises ValueError when the node is not readable, CoordinationError.
    """
    try:
        data, stat = await coordination.get(layout.CONTROLLER)
    except NoNode:
        return None
    return ActiveController(layout.decode_controller(data), stat)


async def read_epoch(coordination: Coordination) -> tuple[int, int]:
    """Return the controller epoch and the node's version; create the node before the first election.

    Raises ValueError when the node is not readable, CoordinationError.
    """
    while True:
        try:
            data, stat = await coordination.get(layout.CONTROLLER_EPOCH)
            return layout.decode_controller_epoch(data), stat.version
        except NoNode:
            try:
                await coordination.create(layout.CONTROLLER_EPOCH, b"0")
            except (NodeExists, OutcomeUnknown):
                continue
