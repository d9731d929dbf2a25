"""Changes of settings, credentials and quotas, which notifications under `/config/changes` name (R71).

Each broker reads what has changed from the node of the entity.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, Protocol

from minikafka.base.model import BrokerId
from minikafka.base.ports import (
    Check,
    Clock,
    MultiOp,
    Tasks,
    Znode,
    ZooKeeper,
)
from minikafka.broker.capabilities import ConfigListener
from minikafka.broker.modes.zookeeper.notifications import Notifications
from minikafka.security.quotas import QuotaEntity
from minikafka.zookeeper.nodes import configs, layout
from minikafka.zookeeper.nodes.faults import Faults

USERS_AT_ONCE: Final = 50
"""Users whose nodes are read and decoded in one turn of the event loop, which takes about 1 ms."""
_UNCLEAN: Final = "unclean.leader.election.enable"


class ConfigWrites(Protocol):
    """The differences between the modes: the fence of written settings, and the broker that acts on a change."""

    @property
    def fence_paths(self) -> Sequence[str]:
        """Nodes that are read together with the settings before a write."""

    def fence(self, nodes: Sequence[Znode | None]) -> list[Check]:
        """Return the checks of a write. `nodes`: the nodes `fence_paths`, as they were read with the settings.

        Raises KafkaError if settings cannot be written yet.
        """

    async def write(self, fence: list[Check], operations: Sequence[MultiOp]) -> None:
        """Write all operations or none. Raises ControllerMoved if the fence has failed, and CoordinationError."""

    def acts_on_changes(self) -> bool:
        """Return True if this broker deletes old notifications and reacts to enabled unclean elections."""

    def unclean_election_enabled(self, topics: Sequence[str]) -> None:
        """Elect leaders for partitions of these topics, which now allow unclean elections (R63)."""

    async def purge(self, operations: Sequence[MultiOp]) -> None:
        """Delete old notifications. Raises KafkaError, CoordinationError."""


class ZooKeeperConfigChanges:
    """ZooKeeper implementation of ConfigChanges: applies changed settings to one broker."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        clock: Clock,
        tasks: Tasks,
        broker_id: BrokerId,
        listener: ConfigListener,
        writes: ConfigWrites,
        faults: Faults,
    ) -> None:
        self._zookeeper = zookeeper
        self._tasks = tasks
        self._listener = listener
        self._writes = writes
        self._faults = faults
        self._own_entities = configs.entities_of_broker(broker_id)
        self._users: set[str] = set()
        """Nodes of the users that the listener knows, so that it learns of removed users after a disconnection."""
        self._owners: set[configs.Entity] = set()
        """The other entities whose quotas the listener knows."""
        self._notifications = Notifications(
            zookeeper, clock, layout.CONFIG_CHANGES, self, configs.removal
        )
        self._notifications.may_delete = writes.acts_on_changes
        self._notifications.delete = writes.purge

    async def start(self) -> None:
        """Start following the notifications; return when the current settings have been applied."""
        self._tasks.spawn(self._notifications.run(), "config-changes")
        await self._notifications.has_started.wait()

    async def apply_now(self) -> None:
        """Apply all notifications that exist now. Raises CoordinationError."""
        await self._notifications.apply_now()

    async def read_all(self, new: Sequence[str]) -> Collection[str]:
        """Apply all settings, and then the notifications, which may report an unclean election."""
        await self._read_broker_settings()
        await self._listener.topics_configured(None)
        await self._read_all_users()
        return await self.read_changed(new)

    async def read_changed(self, new: Sequence[str]) -> Collection[str]:
        """Apply the settings of the entities that these notifications name."""
        found = await configs.read_changes(self._zookeeper, new, self._faults)
        changed = {entity for entity in found.values() if entity is not None}
        topics = sorted(entity.name for entity in changed if entity.kind == configs.TOPICS)
        if topics:
            await self._listener.topics_configured(topics)
            await self._report_unclean(topics)
        if changed.intersection(self._own_entities):
            await self._read_broker_settings()
        await self._read_users(entity.name for entity in changed if _is_user(entity))
        await self._read_quotas(
            entity for entity in changed if configs.has_quotas(entity) and not _is_user(entity)
        )
        return found.keys()

    async def _read_broker_settings(self) -> None:
        cluster, own = await configs.read(self._zookeeper, self._own_entities, self._faults)
        self._listener.brokers_configured(cluster, own)

    async def _read_all_users(self) -> None:
        """Pass credentials and quotas to the listener, also of those whose nodes no longer exist."""
        nodes = await configs.user_nodes(self._zookeeper)
        await self._read_users({*self._users, *nodes})
        owners = await configs.owners_of_quotas(self._zookeeper, nodes)
        await self._read_quotas({*self._owners, *owners})

    async def _read_users(self, nodes: Iterable[str]) -> None:
        """Pass the settings of the users with these nodes to the listener. `<default>` has quotas only."""
        names = sorted(set(nodes) - {layout.DEFAULT_USER})
        for start in range(0, len(names), USERS_AT_ONCE):
            part = names[start : start + USERS_AT_ONCE]
            users = await configs.read_users(self._zookeeper, part, self._faults)
            self._listener.users_configured(users)
            self._listener.quotas_configured(
                {QuotaEntity(user): overrides for user, overrides in users.items()}
            )
            self._users.update(part)

    async def _read_quotas(self, entities: Iterable[configs.Entity]) -> None:
        """Pass the quotas of these entities to the listener."""
        wanted = sorted(entities)
        for start in range(0, len(wanted), USERS_AT_ONCE):
            part = wanted[start : start + USERS_AT_ONCE]
            self._listener.quotas_configured(
                await configs.read_quotas(self._zookeeper, part, self._faults)
            )
            self._owners.update(part)

    async def _report_unclean(self, topics: Sequence[str]) -> None:
        """Report topics that now allow unclean elections, if this broker acts on changes (R63)."""
        if not self._writes.acts_on_changes():
            return
        entities = [configs.Entity(configs.TOPICS, topic) for topic in topics]
        settings = await configs.read(self._zookeeper, entities, self._faults)
        enabled = [
            topic
            for topic, own in zip(topics, settings, strict=True)
            if own.get(_UNCLEAN, "").strip().lower() == "true"
        ]
        if enabled:
            self._writes.unclean_election_enabled(enabled)


def _is_user(entity: configs.Entity) -> bool:
    """Return True if an entity is a user, who may have credentials; False for `<default>` and for client ids."""
    is_named = "/" not in entity.name and entity.name != layout.DEFAULT_USER
    return entity.kind == configs.USERS and is_named
