"""Who waits for which change: one-shot watches and recursive ones, as level signals.

A signal says "read again", never what is there now (`zookeeper.md` §4.6). Invariant: a consumer that
registered before its read misses nothing: each change that the server reports, and each new connection
(whose server may have changed anything unseen), completes what is registered then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
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


class TreeWatch:
    """Signals of a recursive watch, as an async iterator; None: read everything again.

    Signals that were not taken are coalesced: each path is told once, and None stands for all paths.
    """

    def __init__(self, path: str, release: Callable[[TreeWatch], Awaitable[None]]) -> None:
        self.path = path
        self._release = release
        self._paths: dict[str | None, None] = {}
        self.is_over = False
        self._ready = asyncio.Event()

    def __aiter__(self) -> TreeWatch:
        return self

    async def __anext__(self) -> str | None:
        while not self._paths:
            if self.is_over:
                raise StopAsyncIteration
            self._ready.clear()
            await self._ready.wait()
        path = next(iter(self._paths))
        del self._paths[path]
        return path

    async def aclose(self) -> None:
        """Take the watch off the server; the iteration ends."""
        if not self.is_over:
            self.end()
            await self._release(self)

    def covers(self, path: str) -> bool:
        """Whether it is the tree's root or below it."""
        return path == self.path or path.startswith(self.path.rstrip("/") + "/")

    def put(self, path: str | None) -> None:
        """That path changed; None: anything may have."""
        if path is None:
            self._paths.clear()
        if None not in self._paths:
            self._paths[path] = None
        self._ready.set()

    def end(self) -> None:
        """The iteration ends when it has given what it has."""
        self.is_over = True
        self._ready.set()


class Watches:
    """All that is registered in one session, by the paths that consumers use."""

    def __init__(self) -> None:
        self._one_shots: dict[tuple[WatchKind, str], list[OneShot]] = {}
        self.trees: list[TreeWatch] = []

    def register(self, kind: WatchKind, path: str) -> OneShot:
        """A new one-shot watch; several of a kind on a path complete together."""
        watch = OneShot()
        self._one_shots.setdefault((kind, path), []).append(watch)
        return watch

    def discard(self, kind: WatchKind, path: str, watch: OneShot) -> None:
        """Nobody waits for this one any more."""
        waiting = self._one_shots.get((kind, path), [])
        if watch in waiting:
            waiting.remove(watch)
        if not waiting:
            self.forget(kind, path)

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
        for tree in self._trees_over(path):
            tree.put(path)

    def resync(self) -> None:
        """Complete every one-shot: what they watched for may have happened unseen."""
        for key in list(self._one_shots):
            self._complete(key, WatchSignal.RESYNC)

    def _complete(self, key: tuple[WatchKind, str], signal: WatchSignal) -> None:
        for watch in self._one_shots.pop(key, ()):
            watch.complete(signal)

    def _trees_over(self, path: str) -> Iterator[TreeWatch]:
        return (tree for tree in self.trees if tree.covers(path))
