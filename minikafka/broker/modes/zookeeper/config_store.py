"""Dynamic settings in ZooKeeper: reading, altering by compare-and-set, and following changes (R71).

Any broker may write settings. Each write is one multi: the fence of the mode, the write of the settings node at the
version that was read, and the notification for all brokers.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Final

from minikafka.base.errors import (
    BadVersion,
    ControllerMoved,
    ErrorCode,
    KafkaError,
    MultiFailed,
    NodeExists,
    NoNode,
    OutcomeUnknown,
)
from minikafka.base.model import BrokerId
from minikafka.base.ports import Check, Clock, Create, Set, Tasks, ZooKeeper
from minikafka.broker.capabilities import ConfigKind, ConfigListener, Overrides
from minikafka.broker.modes.zookeeper.config_changes import (
    USERS_AT_ONCE,
    ConfigWrites,
    ZooKeeperConfigChanges,
)
from minikafka.broker.modes.zookeeper.lost_answers import read_back
from minikafka.security.quotas import QuotaEntity
from minikafka.zookeeper.nodes import configs, layout
from minikafka.zookeeper.nodes.faults import Faults

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 5
"""Compare-and-set attempts on one settings node before giving up."""


class ZooKeeperConfigs:
    """ZooKeeper implementation of ConfigStore, with the nodes below `/config`."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        clock: Clock,
        tasks: Tasks,
        broker_id: BrokerId,
        writes: ConfigWrites,
    ) -> None:
        self._zookeeper = zookeeper
        self._clock = clock
        self._tasks = tasks
        self._broker_id = broker_id
        self._writes = writes
        self._faults = Faults()

    async def topics(self, names: Sequence[str], *, latest: bool = False) -> list[Overrides]:
        """Return the overrides of each topic, in the order of `names`.

        `latest`: sync first, because this broker's ZooKeeper server may lag behind that of the writer.
        """
        if latest:
            await self._zookeeper.sync(layout.TOPIC_CONFIGS)
        entities = [configs.Entity(configs.TOPICS, name) for name in names]
        return list(await configs.read(self._zookeeper, entities, self._faults))

    async def users(self, names: Sequence[str] | None) -> AsyncIterator[Mapping[str, Overrides]]:
        """Yield the stored overrides of these users (None: all users) in parts, after a sync."""
        await self._zookeeper.sync(layout.USER_CONFIGS)
        nodes = (
            [*{*await configs.user_nodes(self._zookeeper)} - {layout.DEFAULT_USER}]
            if names is None
            else [layout.sanitized(name) for name in names]
        )
        for start in range(0, len(nodes), USERS_AT_ONCE):
            part = nodes[start : start + USERS_AT_ONCE]
            yield await configs.read_users(self._zookeeper, part, self._faults)

    def changes(self, listener: ConfigListener) -> ZooKeeperConfigChanges:
        """Return the object that follows change notifications and passes changed settings to `listener`."""
        return ZooKeeperConfigChanges(
            self._zookeeper,
            self._clock,
            self._tasks,
            self._broker_id,
            listener,
            self._writes,
            self._faults,
        )

    async def alter(
        self,
        kind: ConfigKind,
        name: str,
        change: Callable[[Overrides], Overrides],
        *,
        validate_only: bool,
    ) -> None:
        """Replace an entity's overrides by `change(current overrides)`, and notify all brokers, in one multi."""
        await self._alter(_entity(kind, name), change, validate_only)

    async def alter_quotas(
        self, owner: QuotaEntity, change: Callable[[Overrides], Overrides], *, validate_only: bool
    ) -> None:
        entity = configs.quota_owner(owner)
        if not validate_only:
            await configs.ensure_parent(self._zookeeper, entity)
        await self._alter(entity, change, validate_only)

    async def _alter(
        self,
        entity: configs.Entity,
        change: Callable[[Overrides], Overrides],
        validate_only: bool,
    ) -> None:
        path = configs.path_of(entity)
        for _ in range(_ATTEMPTS):
            node, *fence_nodes = await self._zookeeper.get_many([path, *self._writes.fence_paths])
            fence = self._writes.fence(fence_nodes)
            after = change(configs.decode(entity, node, self._faults) or {})
            if validate_only:
                return
            write = configs.write(entity, after, None if node is None else node.stat.version)
            if await self._commit(entity, write, fence):
                names = ", ".join(sorted(after)) or "none"  # without values: some are secret
                logger.info("settings of %s %s: %s", entity.kind, entity.name, names)
                return
        raise KafkaError(
            ErrorCode.REQUEST_TIMED_OUT, "the settings are being changed by other requests; retry"
        )

    async def _commit(
        self, entity: configs.Entity, write: Create | Set, fence: list[Check]
    ) -> bool:
        """Write settings and notification; return False if the node or the fence has changed.

        If the answer is lost, the node is read to find out whether the write succeeded.
        """
        operations = [write, configs.notification(entity)]
        try:
            await self._writes.write(fence, operations)
        except OutcomeUnknown:
            if await read_back(self._zookeeper, write.path) != write.data:
                raise
        except ControllerMoved:
            return False  # any broker may write settings: the caller retries with the new epoch
        except MultiFailed as failed:
            if isinstance(failed.error, BadVersion | NodeExists | NoNode):
                return False
            raise
        return True


def _entity(kind: ConfigKind, name: str) -> configs.Entity:
    if kind is ConfigKind.TOPIC:
        return configs.Entity(configs.TOPICS, name)
    if kind is ConfigKind.USER:
        return configs.user_entity(name)
    return configs.Entity(configs.BROKERS, name or layout.ALL_BROKERS)
