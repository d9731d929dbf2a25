"""Controller election: `/controller` names the active controller (A7), `/controller_epoch` counts elections (A8)."""

from __future__ import annotations

from typing import NamedTuple

from minikafka.base.errors import NodeExists, NoNode, OutcomeUnknown
from minikafka.base.model import BrokerId
from minikafka.base.ports import Check, Create, Delete, MultiOp, Set, Stat, ZooKeeper
from minikafka.zookeeper.nodes import layout


class ActiveController(NamedTuple):
    """The active controller's broker id, and the Stat of `/controller`."""

    broker_id: BrokerId
    stat: Stat


def fence(version: int) -> Check:
    """Return the operation that makes a multi fail unless `/controller_epoch` has this version (R2).

    The version changes with each election.
    """
    return Check(layout.CONTROLLER_EPOCH, version)


def candidacy(broker_id: BrokerId, epoch: int, version: int, wall_ms: int) -> list[MultiOp]:
    """Return the operations of the multi that elects the broker as controller (R1).

    `epoch`: the new controller epoch. `version`: the version of `/controller_epoch` before the election.
    """
    return [
        Create(layout.CONTROLLER, layout.encode_controller(broker_id, wall_ms), ephemeral=True),
        fence(version),
        Set(layout.CONTROLLER_EPOCH, str(epoch).encode(), version),
    ]


def takeover(
    broker_id: BrokerId, epoch: int, version: int, former_version: int, wall_ms: int
) -> list[MultiOp]:
    """Return the operations of the multi that makes the broker the controller in place of the present one.

    `epoch`: the new controller epoch. `version`: the version of `/controller_epoch` that was read before
    `/controller`. It is the fence: each election changes it. The version of `/controller`, `former_version`, cannot
    be the fence, because a new node always has version 0.
    """
    return [
        Set(layout.CONTROLLER_EPOCH, str(epoch).encode(), version),
        Delete(layout.CONTROLLER, former_version),
        Create(layout.CONTROLLER, layout.encode_controller(broker_id, wall_ms), ephemeral=True),
    ]


def resignation(controller_version: int, epoch_version: int) -> list[MultiOp]:
    """Return the operations of the multi that deletes `/controller` when the controller resigns.

    The multi fails if `/controller` or `/controller_epoch` does not have the given version. `epoch_version` must have
    been read before `/controller`: otherwise the multi could delete the node of a successor.
    """
    return [fence(epoch_version), Delete(layout.CONTROLLER, controller_version)]


async def read_controller(zookeeper: ZooKeeper) -> ActiveController | None:
    """Return the active controller, None if there is no active controller.

    Raises ValueError if `/controller` is not readable, and CoordinationError.
    """
    try:
        data, stat = await zookeeper.get(layout.CONTROLLER)
    except NoNode:
        return None
    return ActiveController(layout.decode_controller(data), stat)


async def read_epoch(zookeeper: ZooKeeper) -> tuple[int, int]:
    """Return the controller epoch, and the version of `/controller_epoch`. Create the node if it is absent.

    Raises ValueError if `/controller_epoch` is not readable, and CoordinationError.
    """
    while True:
        try:
            data, stat = await zookeeper.get(layout.CONTROLLER_EPOCH)
            return layout.decode_controller_epoch(data), stat.version
        except NoNode:
            try:
                await zookeeper.create(layout.CONTROLLER_EPOCH, b"0")
            except (NodeExists, OutcomeUnknown):
                continue


async def read_latest_epoch(zookeeper: ZooKeeper) -> int:
    """Return the controller epoch after all elections so far, also those that this session's server has not seen.

    Raises ValueError if `/controller_epoch` is absent or not readable, and CoordinationError.
    """
    await zookeeper.sync(layout.CONTROLLER_EPOCH)
    try:
        data, _ = await zookeeper.get(layout.CONTROLLER_EPOCH)
    except NoNode:
        raise ValueError("the node is absent") from None
    return layout.decode_controller_epoch(data)
