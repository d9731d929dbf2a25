"""Change notifications: a broker follows the names below a znode, and reads what they name (R71).

A notification names what was written, but does not contain it. Invariants: the watch is set before the names of the
notifications are read, and the names are read before what they name, so that no change is missed. A notification that
could not be applied is read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, Protocol

from minikafka.base.errors import Closed, CoordinationError, KafkaError
from minikafka.base.ports import Clock, MultiOp, WatchKind, WatchSignal, ZooKeeper

logger = logging.getLogger(__name__)

KEPT_MS: Final = 15 * 60_000
"""Time after which a notification is deleted, the same as Kafka's `DefaultChangeExpirationMs`."""
_PURGED_AT_ONCE: Final = 500
_RETRY_MS: Final = 200


class Reader(Protocol):
    """Reads what notifications name. Both functions return the notifications that are applied."""

    async def read_all(self, new: Sequence[str]) -> Collection[str]:
        """Apply everything, because notifications may have been created and deleted unseen."""

    async def read_changed(self, new: Sequence[str]) -> Collection[str]:
        """Apply what these notifications name. They have not been applied before."""


class Notifications:
    """The notifications below one znode, and what one broker has applied of them."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        clock: Clock,
        directory: str,
        reader: Reader,
        removal: Callable[[str], MultiOp],
        applying: asyncio.Lock | None = None,
    ) -> None:
        """`removal` returns the operation that deletes a notification. `applying` is held while changes are applied."""
        self._zookeeper = zookeeper
        self._clock = clock
        self._directory = directory
        self._reader = reader
        self._removal = removal
        self._applying = applying or asyncio.Lock()
        self._applied: dict[str, int] = {}
        """Name of each notification → this broker's monotonic time at which it applied the notification.

        The age of a notification is not computed from its creation time: that is a time of ZooKeeper's wall clock. A
        broker with a clock that is ahead would delete notifications before other brokers have read them.
        """
        self.has_started = asyncio.Event()
        """Set when everything has been read for the first time."""
        self.delete: Callable[[Sequence[MultiOp]], Awaitable[object]] = zookeeper.multi
        """Deletes old notifications. All brokers may try, and one succeeds."""
        self.may_delete: Callable[[], bool] = lambda: True

    async def run(self) -> None:
        """Follow the notifications until the session is closed."""
        signal = WatchSignal.RESYNC
        while True:
            try:
                signal = await self._follow(signal)
            except Closed:
                return
            except CoordinationError as error:
                reason = f"{type(error).__name__} {error}"
                logger.info("changes below %s cannot be read: %s", self._directory, reason)
                signal = WatchSignal.RESYNC
                await self._clock.sleep(_RETRY_MS)
                await self._zookeeper.connected()

    async def apply_now(self) -> None:
        """Apply all notifications that exist now. Raises CoordinationError."""
        names, _ = await self._zookeeper.children(self._directory)
        await self._apply(names, self._reader.read_changed)

    async def _follow(self, signal: WatchSignal) -> WatchSignal:
        """Apply the new notifications, then wait for the next watch signal and return that signal.

        `signal`: the signal that the previous call returned; RESYNC for the first call and after an error.
        """
        watch = self._zookeeper.watch(WatchKind.CHILDREN, self._directory)
        names, _ = await self._zookeeper.children(self._directory, watch=True)
        is_lost = signal is WatchSignal.RESYNC
        await self._apply(names, self._reader.read_all if is_lost else self._reader.read_changed)
        self.has_started.set()
        await self._purge()
        return await watch.wait()

    async def _apply(
        self, names: Sequence[str], read: Callable[[Sequence[str]], Awaitable[Collection[str]]]
    ) -> None:
        async with self._applying:
            new = await read([name for name in names if name not in self._applied])
            left = self._applied.keys() & set(names)
            self._applied = {name: self._applied[name] for name in left}
            self._applied.update(dict.fromkeys(new, self._clock.now()))

    async def _purge(self) -> None:
        """Delete notifications that were applied more than `KEPT_MS` ago, if this broker may do so."""
        oldest = self._clock.now() - KEPT_MS
        old = [name for name, applied in self._applied.items() if applied < oldest]
        if not old or not self.may_delete():
            return
        try:
            await self.delete([self._removal(name) for name in old[:_PURGED_AT_ONCE]])
        except (KafkaError, CoordinationError) as error:
            logger.debug("old notifications below %s still exist: %s", self._directory, error)
