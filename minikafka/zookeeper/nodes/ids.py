"""The nodes with the cluster id and with the latest block of producer ids (R72)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final

from minikafka.base.config.keys import LONG_MAX
from minikafka.base.errors import BadVersion, ClusterLost, ConfigError, NodeExists, NoNode
from minikafka.base.model import BrokerId, topic_id_text
from minikafka.base.ports import ZooKeeper
from minikafka.zookeeper.nodes import layout

logger = logging.getLogger(__name__)

LOST: Final = (
    "ZooKeeper's data were lost, or zookeeper.connect names another ZooKeeper. Topics, their settings, leaders and "
    "ISRs are missing there; records and group offsets are still in the log directories"
)
_NEW: Final = (
    "zookeeper.connect = %s: below the chroot was no cluster, so a new one begins; if this broker should join another, "
    "correct the key, and empty its log.dirs"
)
WAYS_OUT: Final = "restore its data; or stop the brokers and rebuild it from the log directories: minikafka zk recover"


async def cluster_id(
    zookeeper: ZooKeeper, random_id: Callable[[], bytes], connect: str = ""
) -> str:
    """Return the cluster id. The first broker of a cluster creates the id from the 16 bytes of `random_id`.

    Each later session is checked for the same id (`check`). `connect`: the value of `zookeeper.connect`, for a
    warning about a chroot.

    Raises ConfigError if the node is not readable, and CoordinationError.
    """
    try:
        data, _ = await zookeeper.get(layout.CLUSTER_ID)
    except NoNode:
        data = layout.encode_cluster_id(topic_id_text(random_id()))
        await zookeeper.ensure(layout.CLUSTER_ID.rpartition("/")[0])
        with suppress(NodeExists):
            await zookeeper.create(layout.CLUSTER_ID, data)
            if "/" in connect:
                logger.warning(_NEW, connect)
        data, _ = await zookeeper.get(layout.CLUSTER_ID)
    try:
        found = layout.decode_cluster_id(data)
    except ValueError as fault:
        raise ConfigError(
            f"zookeeper.connect: the node {layout.CLUSTER_ID} is not readable ({fault}); "
            "restore it, or name another chroot"
        ) from None
    zookeeper.verify_sessions(layout.CLUSTER_ID, partial(check, found))
    return found


async def stored(zookeeper: ZooKeeper) -> bytes | None:
    """Return the data of `/cluster/id`, None if the node is missing. Raises CoordinationError."""
    [node] = await zookeeper.get_many([layout.CLUSTER_ID])
    return None if node is None else node.data


async def restore(zookeeper: ZooKeeper, cluster_id: str) -> None:
    """Write `/cluster/id` again, over any other id. Raises CoordinationError."""
    data = layout.encode_cluster_id(cluster_id)
    await zookeeper.ensure(layout.CLUSTER_ID.rpartition("/")[0])
    try:
        await zookeeper.create(layout.CLUSTER_ID, data)
    except NodeExists:
        await zookeeper.set(layout.CLUSTER_ID, data, -1)


async def verify(zookeeper: ZooKeeper, known: str | None) -> None:
    """Check that ZooKeeper has the cluster of the log directories.

    `known`: the cluster id of the log directories, None if they are new. Raises ClusterLost and CoordinationError.
    """
    if known is None:
        return  # `cluster_id` verifies the later sessions
    await zookeeper.sync(layout.CLUSTER_ID)  # otherwise an old cluster could look new
    check(known, await stored(zookeeper))


def check(known: str, data: bytes | None) -> None:
    """Raise ClusterLost unless the data of `/cluster/id`, None for a missing node, have the id `known`."""
    if data is None:
        raise ClusterLost(
            f"ZooKeeper has no node {layout.CLUSTER_ID}, but the log directories belong to cluster {known}: "
            f"{LOST}. Ways out: {WAYS_OUT}"
        )
    try:
        found = layout.decode_cluster_id(data)
    except ValueError:
        return  # `cluster_id` names the fault
    if found != known:
        raise ClusterLost(
            f"the log directories belong to cluster {known}, but ZooKeeper has cluster {found}: correct "
            f"zookeeper.connect or log.dirs. If ZooKeeper's data were lost: {WAYS_OUT}"
        )


async def claim_producer_ids(
    zookeeper: ZooKeeper, broker_id: BrokerId, size: int
) -> tuple[int, int]:
    """Claim the next block of `size` producer ids by compare-and-set; return the first and the last id.

    Raises CoordinationError, and ValueError if the node is not readable or no ids are left. After
    OutcomeUnknown, the block may have been claimed, and must not be used.
    """
    while True:
        data, stat = await zookeeper.get(layout.PRODUCER_ID_BLOCK)
        try:
            first = layout.decode_producer_ids(data).last + 1 if data else 0
        except ValueError as fault:
            raise ValueError(f"{layout.PRODUCER_ID_BLOCK} is not readable: {fault}") from None
        last = first + size - 1
        if last > LONG_MAX:
            raise ValueError(f"{layout.PRODUCER_ID_BLOCK}: all producer ids are used")
        block = layout.encode_producer_ids(broker_id, first, last)
        try:
            await zookeeper.set(layout.PRODUCER_ID_BLOCK, block, stat.version)
        except BadVersion:
            continue
        return first, last
