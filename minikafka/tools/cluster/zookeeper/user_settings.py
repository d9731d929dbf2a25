"""Settings of users in ZooKeeper, written without a broker: before the first broker starts there is none to ask."""

from __future__ import annotations

from collections.abc import Mapping

from minikafka.base.ports import ZooKeeper
from minikafka.tools.cluster.directory import ClusterError
from minikafka.zookeeper.nodes import configs, layout
from minikafka.zookeeper.nodes.faults import Faults
from minikafka.zookeeper.nodes.reader import get_one


async def alter_user(zookeeper: ZooKeeper, user: str, changes: Mapping[str, str | None]) -> None:
    """Change settings of a user, and notify the brokers that run. None removes a setting.

    Raises ClusterError if the settings are not readable, and CoordinationError.
    """
    entity = configs.user_entity(user)
    await zookeeper.ensure(layout.USER_CONFIGS)
    await zookeeper.ensure(layout.CONFIG_CHANGES)
    node = await get_one(zookeeper, configs.path_of(entity))
    before = configs.decode(entity, node, Faults())
    if before is None:
        raise ClusterError(f"{configs.path_of(entity)} is not readable: delete this node")
    merged = {**before, **changes}
    after = {name: value for name, value in merged.items() if value is not None}
    version = None if node is None else node.stat.version
    await zookeeper.multi([configs.write(entity, after, version), configs.notification(entity)])


async def user_settings(zookeeper: ZooKeeper, user: str) -> dict[str, str]:
    """Return the settings of a user; {} for an unknown one. Raises CoordinationError."""
    [found] = await configs.read(zookeeper, [configs.user_entity(user)], Faults())
    return found
