"""Who waits for which change: one-shot watches, as level signals.

A signal says "read again", never what is there now. Invariant: a consumer that
registered before its read misses nothing: each change that the server reports, and each new connection
(whose server may have changed anything unseen), completes what is registered then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from minikafka.base.ports import WatchKind, WatchSignal
from minikafka.zk import codec

_COMPLETES: Final = {
    codec.NODE_CREATED: (WatchKind.DATA, WatchKind.EXISTS),
    codec.NODE_DELETED: (WatchKind.DATA, WatchKind.EXISTS, WatchKind.CHILDREN),
    codec.DATA_CHANGED: (WatchKind.DATA, WatchKind.EXISTS),
    codec.CHILDREN_CHANGED: (WatchKind.CHILDREN,),
}
"""Which watches of its path a change completes. (A data watch is never armed on a missing node.)"""


class OneShot:
    """The Watch port. `signal` is a future so that a callback's crash ends nobody else's turn."""

    def __init__(self) -> None:
        self._signal: asyncio.Future[WatchSignal] = asyncio.get_running_loop().create_future()

    async def wait(self) -> WatchSignal:
        """See Watch."""
        await asyncio.wait([self._signal])  # not the future itself: cancelling a waiter leaves it
        return self._signal.result()

    def fired(self) -> bool:
        """See Watch."""
        return self._signal.done()

    def on_signal(self, callback: Callable[[WatchSignal], None]) -> None:
        """See Watch."""
        if self._signal.done():
            callback(self._signal.result())
        else:
            self._signal.add_done_callback(lambda signal: callback(signal.result()))

    def complete(self, signal: WatchSignal) -> None:
        """It fired."""
        if not self._signal.done():
            self._signal.set_result(signal)


class Watches:
    """All that is registered in one session, by the paths that consumers use."""

    def __init__(self) -> None:
        self._one_shots: dict[tuple[WatchKind, str], list[OneShot]] = {}

    def register(self, kind: WatchKind, path: str) -> OneShot:
        """A new one-shot watch; several of a kind on a path complete together."""
        watch = OneShot()
        self._one_shots.setdefault((kind, path), []).append(watch)
        return watch

    def forget(self, kind: WatchKind, path: str) -> None:
        """Nobody waits for these any more."""
        self._one_shots.pop((kind, path), None)

    def is_registered(self, kind: WatchKind, path: str) -> bool:
        """Whether somebody waits for these."""
        return (kind, path) in self._one_shots

    def changed(self, change: int, path: str) -> None:
        """The server reported a change of that path."""
        for kind in _COMPLETES.get(change, ()):
            self._complete((kind, path), WatchSignal.CHANGED)

    def resync(self) -> None:
        """Complete every one-shot: what they watched for may have happened unseen."""
        for key in list(self._one_shots):
            self._complete(key, WatchSignal.RESYNC)

    def _complete(self, key: tuple[WatchKind, str], signal: WatchSignal) -> None:
        for watch in self._one_shots.pop(key, ()):
            watch.complete(signal)
