"""The delegation tokens in ZooKeeper: following their changes, writing and removing them.

Any broker may write tokens, and passes what it wrote to its own listener at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Final

from minikafka.base.errors import MultiFailed, NoNode
from minikafka.broker.capabilities import TokenListener
from minikafka.broker.modes.zookeeper.notifications import Notifications
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.security.tokens import DelegationToken
from minikafka.zookeeper.nodes import tokens

_READ_AT_ONCE: Final = 50


class ZooKeeperTokens:
    """ZooKeeper implementation of TokenStore."""

    def __init__(self, ports: Ports) -> None:
        self._zookeeper = ports.zookeeper
        self._tasks = ports.tasks
        self._faults = ports.faults
        self._applying = asyncio.Lock()
        self._notifications = Notifications(
            ports.zookeeper,
            ports.clock,
            tokens.CHANGES,
            self,
            tokens.notification_removal,
            self._applying,
        )
        self._listener: TokenListener

    async def start(self, listener: TokenListener) -> None:
        self._listener = listener
        for path in (tokens.CHANGES, tokens.TOKENS):
            await self._zookeeper.ensure(path)
        self._tasks.spawn(self._notifications.run(), "token-changes")
        await self._notifications.has_started.wait()

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
        await self._notifications.apply_now()

    async def read_all(self, new: Sequence[str]) -> Collection[str]:
        """Pass all tokens to the listener."""
        found = await self._read(await tokens.ids(self._zookeeper))
        self._listener.replace([token for token in found.values() if token is not None])
        return new

    async def read_changed(self, new: Sequence[str]) -> Collection[str]:
        """Pass the tokens that these notifications name to the listener."""
        changed = await tokens.read_changes(self._zookeeper, new, self._faults)
        for token_id, token in (await self._read(sorted(changed))).items():
            self._listener.update(token_id, token)
        return new

    async def _read(self, ids: Sequence[str]) -> dict[str, DelegationToken | None]:
        found: dict[str, DelegationToken | None] = {}
        for start in range(0, len(ids), _READ_AT_ONCE):
            part = ids[start : start + _READ_AT_ONCE]
            found.update(await tokens.read(self._zookeeper, part, self._faults))
        return found
