"""The delegation tokens in ZooKeeper: following their changes, writing and removing them.

Invariants: the watch is set before the names of the notifications are read, and the names are read before the tokens,
so that no change is missed. Any broker may write tokens, and passes what it wrote to its own listener at once.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from minikafka.base.errors import (
    Closed,
    CoordinationError,
    MultiFailed,
    NoNode,
    OutcomeUnknown,
)
from minikafka.base.ports import MultiOp, WatchKind, WatchSignal
from minikafka.broker.capabilities import TokenListener
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.security.tokens import DelegationToken
from minikafka.zookeeper.nodes import tokens

logger = logging.getLogger(__name__)

KEPT_MS: Final = 15 * 60_000
"""Time after which a notification is deleted, as in Kafka."""
_PURGED_AT_ONCE: Final = 500
_READ_AT_ONCE: Final = 50
_RETRY_MS: Final = 200


class ZooKeeperTokens:
    """ZooKeeper implementation of TokenStore."""

    def __init__(self, ports: Ports) -> None:
        self._zookeeper = ports.zookeeper
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._faults = ports.faults
        self._applying = asyncio.Lock()
        self._has_started = asyncio.Event()
        self._listener: TokenListener
        self._applied: dict[str, int] = {}
        """Name of each notification → this broker's monotonic time at which it applied the notification."""

    async def start(self, listener: TokenListener) -> None:
        self._listener = listener
        for path in (tokens.CHANGES, tokens.TOKENS):
            await self._zookeeper.ensure(path)
        self._tasks.spawn(self._run(), "token-changes")
        await self._has_started.wait()

    async def create(self, token: DelegationToken) -> None:
        async with self._applying:
            await self._zookeeper.multi([tokens.creation(token), tokens.notification(token.id)])
            self._listener.update(token.id, token)

    async def change(self, token: DelegationToken) -> bool:
        async with self._applying:
            try:
                await self._zookeeper.multi([tokens.change(token), tokens.notification(token.id)])
            except MultiFailed as failed:
                if not isinstance(failed.error, NoNode):
                    raise
                self._listener.update(token.id, None)
                return False
            self._listener.update(token.id, token)
            return True

    async def remove(self, id: str) -> None:
        async with self._applying:
            try:
                await self._zookeeper.multi([tokens.removal(id), tokens.notification(id)])
            except MultiFailed as failed:
                if not isinstance(failed.error, NoNode):
                    raise
            self._listener.update(id, None)

    async def refresh(self) -> None:
        await self._zookeeper.sync(tokens.CHANGES)
        names, _ = await self._zookeeper.children(tokens.CHANGES)
        async with self._applying:
            await self._apply(names)

    async def _run(self) -> None:
        signal = WatchSignal.RESYNC
        while True:
            try:
                signal = await self._follow(signal)
            except Closed:
                return
            except CoordinationError as error:
                logger.info("changes of tokens cannot be read: %s %s", type(error).__name__, error)
                signal = WatchSignal.RESYNC
                await self._clock.sleep(_RETRY_MS)
                await self._zookeeper.connected()

    async def _follow(self, signal: WatchSignal) -> WatchSignal:
        """Apply the changes, then wait for the next watch signal and return that signal.

        `signal`: the signal that the previous call returned; RESYNC for the first call and after an error. Then all
        tokens are read, because notifications may have been created and deleted in between.
        """
        watch = self._zookeeper.watch(WatchKind.CHILDREN, tokens.CHANGES)
        names, _ = await self._zookeeper.children(tokens.CHANGES, watch=True)
        async with self._applying:
            if signal is WatchSignal.RESYNC:
                found = await self._read(await tokens.ids(self._zookeeper))
                self._listener.replace([token for token in found.values() if token is not None])
            else:
                await self._apply(names)
            now = self._clock.now()
            self._applied = {name: self._applied.get(name, now) for name in names}
        self._has_started.set()
        await self._purge()
        return await watch.wait()

    async def _apply(self, names: Sequence[str]) -> None:
        """Pass the tokens that the new ones of these notifications name to the listener."""
        new = [name for name in names if name not in self._applied]
        changed = await tokens.read_changes(self._zookeeper, new, self._faults)
        for token_id, token in (await self._read(sorted(changed))).items():
            self._listener.update(token_id, token)
        self._applied.update(dict.fromkeys(new, self._clock.now()))

    async def _read(self, ids: Sequence[str]) -> dict[str, DelegationToken | None]:
        found: dict[str, DelegationToken | None] = {}
        for start in range(0, len(ids), _READ_AT_ONCE):
            part = ids[start : start + _READ_AT_ONCE]
            found.update(await tokens.read(self._zookeeper, part, self._faults))
        return found

    async def _purge(self) -> None:
        """Delete notifications that were applied more than `KEPT_MS` ago. Every broker does so, and one succeeds."""
        oldest = self._clock.now() - KEPT_MS
        old = [name for name, applied in self._applied.items() if applied < oldest]
        if not old:
            return
        removals: list[MultiOp] = [
            tokens.notification_removal(name) for name in old[:_PURGED_AT_ONCE]
        ]
        try:
            await self._zookeeper.multi(removals)
        except (MultiFailed, OutcomeUnknown) as failed:
            logger.debug("old notifications of changed tokens are not deleted: %s", failed)
