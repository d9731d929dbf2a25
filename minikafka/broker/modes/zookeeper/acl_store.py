"""The ACLs in ZooKeeper: following their changes, and altering them by compare-and-set.

A broker reads the ACLs of a pattern when a notification names the pattern, and all ACLs after it was disconnected.
Invariant: reads and writes of ACLs are applied one at a time, so that no older ACLs replace newer ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final

from minikafka.base.errors import (
    BadVersion,
    ErrorCode,
    KafkaError,
    MultiFailed,
    NodeExists,
    NoNode,
    OutcomeUnknown,
)
from minikafka.base.ports import Delete, Znode
from minikafka.broker.capabilities import AclListener
from minikafka.broker.modes.zookeeper.lost_answers import read_back
from minikafka.broker.modes.zookeeper.notifications import Notifications
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.security.acls import AclBinding, AclEntry, PatternType, ResourcePattern
from minikafka.zookeeper.nodes import acls
from minikafka.zookeeper.nodes.reader import get_one

logger = logging.getLogger(__name__)

_ATTEMPTS: Final = 11
"""Compare-and-set attempts on one node before giving up, as in Kafka."""
_BACKOFF_MS: Final = 100

Change = Callable[[frozenset[AclEntry]], frozenset[AclEntry]]


class ZooKeeperAcls:
    """ZooKeeper implementation of AclStore."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._zookeeper = ports.zookeeper
        self._applying = asyncio.Lock()
        self._listener: AclListener | None = None

    async def start(self, listener: AclListener) -> None:
        self._listener = listener
        for path in acls.parents():
            await self._zookeeper.ensure(path)
        followed = [self._notifications(listener, kind) for kind in acls.KINDS]
        for notifications in followed:
            self._ports.tasks.spawn(notifications.run(), "acl-changes")
        for notifications in followed:
            await notifications.has_started.wait()

    def _notifications(self, listener: AclListener, kind: PatternType) -> Notifications:
        return Notifications(
            self._zookeeper,
            self._ports.clock,
            acls.CHANGES[kind],
            _Reader(self._ports, listener, kind),
            partial(acls.removal, kind),
            self._applying,
        )

    async def alter(self, pattern: ResourcePattern, change: Change) -> None:
        async with self._applying:
            for attempt in range(_ATTEMPTS):
                if attempt:
                    await self._ports.clock.sleep(_BACKOFF_MS)
                path = acls.path_of(pattern)
                await self._zookeeper.sync(
                    path
                )  # otherwise a server that lags may show former ACLs
                node = await get_one(self._zookeeper, path)
                before = acls.decode(node)
                after = change(before)
                if after == before or await self._write(pattern, after, node):
                    break
            else:
                raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the ACLs change too often")
            if self._listener is not None:
                self._listener.update(pattern, after)

    async def _write(
        self, pattern: ResourcePattern, entries: frozenset[AclEntry], node: Znode | None
    ) -> bool:
        """Write the ACLs and the notification; return False if the node has changed since it was read.

        If the answer is lost, the node is read to find out whether the write succeeded.
        """
        write = acls.write(pattern, entries, None if node is None else node.stat.version)
        wanted = None if isinstance(write, Delete) else write.data
        try:
            await self._zookeeper.multi([write, acls.notification(pattern)])
        except OutcomeUnknown:
            if await read_back(self._zookeeper, write.path) != wanted:
                raise
        except MultiFailed as failed:
            if isinstance(failed.error, BadVersion | NodeExists | NoNode):
                return False
            raise
        told = ", ".join(str(AclBinding(pattern, entry)) for entry in sorted(entries))
        logger.info("the ACLs of %s are now: %s", pattern, told or "none")
        return True


class _Reader:
    """Passes the ACLs of one kind of patterns to the listener."""

    def __init__(self, ports: Ports, listener: AclListener, kind: PatternType) -> None:
        self._zookeeper = ports.zookeeper
        self._faults = ports.faults
        self._listener = listener
        self._kind = kind

    async def read_all(self, new: Sequence[str]) -> Collection[str]:
        """Pass all ACLs."""
        found = await acls.read_all(self._zookeeper, self._kind, self._faults)
        self._listener.replace(self._kind, found)
        return new

    async def read_changed(self, new: Sequence[str]) -> Collection[str]:
        """Pass the ACLs of the patterns that these notifications name; all if one of them is not readable."""
        patterns = await acls.read_changes(self._zookeeper, self._kind, new, self._faults)
        if patterns is None:
            return await self.read_all(new)
        changed = await acls.read(self._zookeeper, patterns, self._faults)
        for pattern, entries in changed.items():
            self._listener.update(pattern, entries)
        return new
