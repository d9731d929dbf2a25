"""The marker of a cluster's coordination mode, which its first broker writes, and the nodes of the controller mode.

A cluster of an earlier version has no marker. Its controller mode shows in `/controller_epoch`.
"""

from __future__ import annotations

from contextlib import suppress

from minikafka.base.coordination import CONTROLLER, LEADERS, MODES
from minikafka.base.errors import ConfigError, NodeExists
from minikafka.base.ports import ZooKeeper
from minikafka.zookeeper.nodes import layout

__all__ = ["CONTROLLER", "LEADERS", "claim", "ensure_parents", "read"]


async def claim(zookeeper: ZooKeeper, mode: str) -> None:
    """Write the marker of this mode if the cluster has none.

    Raises ConfigError if the cluster has the other mode or its marker is not readable, and CoordinationError.
    """
    found = await _read_or_write(zookeeper, mode)
    if found not in MODES:
        raise ConfigError(
            f"zookeeper.connect: the node {layout.COORDINATION} must contain {' or '.join(MODES)}, got "
            f"{found[:60]!a}; restore it, or name another chroot"
        )
    if found != mode:
        raise ConfigError(
            f"minikafka.coordination: this broker has the mode {mode}, but its cluster in ZooKeeper has the "
            f"mode {found}; set minikafka.coordination={found}, or name another chroot in zookeeper.connect"
        )


async def read(zookeeper: ZooKeeper) -> str | None:
    """Return the text of the marker, None if the cluster is new. Raises CoordinationError."""
    marker, epoch = await zookeeper.get_many([layout.COORDINATION, layout.CONTROLLER_EPOCH])
    if marker is not None:
        return marker.data.decode("ascii", "replace")
    return None if epoch is None else CONTROLLER


async def _read_or_write(zookeeper: ZooKeeper, mode: str) -> str:
    await zookeeper.sync(layout.COORDINATION)  # otherwise an old cluster could look new
    marker, epoch = await zookeeper.get_many([layout.COORDINATION, layout.CONTROLLER_EPOCH])
    if marker is None:
        text = mode if epoch is None else CONTROLLER
        await zookeeper.ensure(layout.COORDINATION.rpartition("/")[0])
        with suppress(NodeExists):
            await zookeeper.create(layout.COORDINATION, text.encode())
        marker = await zookeeper.get(layout.COORDINATION)
    return marker.data.decode("ascii", "replace")


async def ensure_parents(zookeeper: ZooKeeper) -> None:
    """Create Kafka's persistent parent nodes that do not exist yet. Raises CoordinationError."""
    for path in layout.PERSISTENT:
        await zookeeper.ensure(path)
