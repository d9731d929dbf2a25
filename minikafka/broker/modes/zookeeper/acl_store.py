"""The ACLs in ZooKeeper: following their changes, and altering them by compare-and-set.

A broker reads the ACLs of a pattern when a notification names the pattern, and all ACLs after it was disconnected.
Invariants: the watch is set before the names of the notifications are read, and the names are read before the ACLs, so
that no change is missed. Reads and writes of ACLs are applied one at a time, so that no older ACLs replace newer ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from minikafka.base.errors import (
    BadVersion,
    Closed,
    CoordinationError,
    ErrorCode,
    KafkaError,
    MultiFailed,
    NodeExists,
    NoNode,
    OutcomeUnknown,
)
from minikafka.base.ports import Delete, WatchKind, WatchSignal, Znode
from minikafka.broker.capabilities import AclListener
from minikafka.broker.modes.zookeeper.lost_answers import read_back
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.security.acls import AclBinding, AclEntry, PatternType, ResourcePattern
from minikafka.zookeeper.nodes import acls
from minikafka.zookeeper.nodes.reader import get_one

logger = logging.getLogger(__name__)

KEPT_MS: Final = 15 * 60_000
"""Time after which a notification is deleted, as in Kafka."""
_PURGED_AT_ONCE: Final = 500
_RETRY_MS: Final = 200
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
        followers = [_Follower(self._ports, listener, kind, self._applying) for kind in acls.KINDS]
        for follower in followers:
            self._ports.tasks.spawn(follower.run(), "acl-changes")
        for follower in followers:
            await follower.has_started.wait()

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


class _Follower:
    """Passes the ACLs of one kind of patterns to the listener, whenever they change."""

    def __init__(
        self, ports: Ports, listener: AclListener, kind: PatternType, applying: asyncio.Lock
    ) -> None:
        self._zookeeper = ports.zookeeper
        self._clock = ports.clock
        self._faults = ports.faults
        self._listener = listener
        self._kind = kind
        self._applying = applying
        self._applied: dict[str, int] = {}
        """Name of each notification → this broker's monotonic time at which it applied the notification."""
        self.has_started = asyncio.Event()

    async def run(self) -> None:
        """Follow the changes until the session is closed."""
        signal = WatchSignal.RESYNC
        while True:
            try:
                signal = await self._follow(signal)
            except Closed:
                return
            except CoordinationError as error:
                logger.info("changes of ACLs cannot be read: %s %s", type(error).__name__, error)
                signal = WatchSignal.RESYNC
                await self._clock.sleep(_RETRY_MS)
                await self._zookeeper.connected()

    async def _follow(self, signal: WatchSignal) -> WatchSignal:
        """Apply the changes, then wait for the next watch signal and return that signal.

        `signal`: the signal that the previous call returned; RESYNC for the first call and after an error. Then all
        ACLs are read, because notifications may have been created and deleted in between.
        """
        directory = acls.CHANGES[self._kind]
        watch = self._zookeeper.watch(WatchKind.CHILDREN, directory)
        names, _ = await self._zookeeper.children(directory, watch=True)
        async with self._applying:
            if signal is WatchSignal.RESYNC or not await self._apply(names):
                self._listener.replace(
                    self._kind, await acls.read_all(self._zookeeper, self._kind, self._faults)
                )
        now = self._clock.now()
        self._applied = {name: self._applied.get(name, now) for name in names}
        self.has_started.set()
        await self._purge()
        return await watch.wait()

    async def _apply(self, names: Sequence[str]) -> bool:
        """Apply the new notifications among these. Return False if one does not tell which pattern has changed."""
        new = [name for name in names if name not in self._applied]
        patterns = await acls.read_changes(self._zookeeper, self._kind, new, self._faults)
        if patterns is None:
            return False
        changed = await acls.read(self._zookeeper, patterns, self._faults)
        for pattern, entries in changed.items():
            self._listener.update(pattern, entries)
        return True

    async def _purge(self) -> None:
        """Delete notifications that were applied more than `KEPT_MS` ago. Every broker does so, and one succeeds."""
        oldest = self._clock.now() - KEPT_MS
        old = [name for name, applied in self._applied.items() if applied < oldest]
        if not old:
            return
        removals = [acls.removal(self._kind, name) for name in old[:_PURGED_AT_ONCE]]
        try:
            await self._zookeeper.multi(removals)
        except MultiFailed as failed:
            logger.debug("old notifications of changed ACLs are not deleted: %s", failed)
