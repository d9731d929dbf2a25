"""One-shot watches of a session, which tell their consumers to read again.

A watch does not contain the new state. Invariant: a consumer that registers a watch before reading misses no
change. Each change that the server reports completes the watches on the changed path. Each new connection
completes all watches, because changes before the connection may not have been reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from minikafka.base.ports import WatchKind, WatchSignal
from minikafka.zk.messages import codes

_COMPLETES: Final = {
    codes.NODE_CREATED: (WatchKind.DATA, WatchKind.EXISTS),
    codes.NODE_DELETED: (WatchKind.DATA, WatchKind.EXISTS, WatchKind.CHILDREN),
    codes.DATA_CHANGED: (WatchKind.DATA, WatchKind.EXISTS),
    codes.CHILDREN_CHANGED: (WatchKind.CHILDREN,),
}
"""Kinds of watch that each kind of change completes. (The server sets no data watch on a missing node.)"""


class OneShot:
    """A watch: the implementation of the port `Watch`.

    A future calls the callbacks, so that an exception in one callback does not stop the other callbacks.
    """

    def __init__(self) -> None:
        self._signal: asyncio.Future[WatchSignal] = asyncio.get_running_loop().create_future()

    async def wait(self) -> WatchSignal:
        """Wait until the watch completes; return the signal."""
        # Awaiting the future itself would cancel the future when the waiting task is cancelled.
        await asyncio.wait([self._signal])
        return self._signal.result()

    def fired(self) -> bool:
        """True if the watch has completed."""
        return self._signal.done()

    def on_signal(self, callback: Callable[[WatchSignal], None]) -> None:
        if self._signal.done():
            callback(self._signal.result())
        else:
            self._signal.add_done_callback(lambda signal: callback(signal.result()))

    def complete(self, signal: WatchSignal) -> None:
        """Complete the watch. Further calls have no effect."""
        if not self._signal.done():
            self._signal.set_result(signal)


class Watches:
    """All watches of one session, by kind and path (without the chroot)."""

    def __init__(self) -> None:
        self._one_shots: dict[tuple[WatchKind, str], list[OneShot]] = {}

    def register(self, kind: WatchKind, path: str) -> OneShot:
        """Return a new watch. All watches of one kind on one path complete together."""
        watch = OneShot()
        self._one_shots.setdefault((kind, path), []).append(watch)
        return watch

    def forget(self, kind: WatchKind, path: str) -> None:
        """Remove all watches of this kind on this path without completing them."""
        self._one_shots.pop((kind, path), None)

    def is_registered(self, kind: WatchKind, path: str) -> bool:
        """True if there is a watch of this kind on this path."""
        return (kind, path) in self._one_shots

    def changed(self, change: int, path: str) -> None:
        """Complete the watches on `path` for this kind of change, which the server has reported."""
        for kind in _COMPLETES.get(change, ()):
            self._complete((kind, path), WatchSignal.CHANGED)

    def resync(self) -> None:
        """Complete all watches with RESYNC, because some changes may not have been reported."""
        for key in list(self._one_shots):
            self._complete(key, WatchSignal.RESYNC)

    def _complete(self, key: tuple[WatchKind, str], signal: WatchSignal) -> None:
        for watch in self._one_shots.pop(key, ()):
            watch.complete(signal)
