"""Client-side watches: which changes complete a watch, and which `WatchSignal` a completed watch returns."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.base.ports import WatchKind, WatchSignal
from minikafka.zookeeper.client.client import OneShot, Watches
from minikafka.zookeeper.messages import codes

DATA, EXISTS, CHILDREN = WatchKind.DATA, WatchKind.EXISTS, WatchKind.CHILDREN


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (codes.NODE_CREATED, {DATA, EXISTS}),
        (codes.NODE_DELETED, {DATA, EXISTS, CHILDREN}),
        (codes.DATA_CHANGED, {DATA, EXISTS}),
        (codes.CHILDREN_CHANGED, {CHILDREN}),
        (99, set()),
    ],
)
async def test_change_completes_watches_of_matching_kinds_on_its_path(
    change: int, kinds: set[WatchKind]
) -> None:
    watches = Watches()
    here = {kind: watches.register(kind, "/a") for kind in WatchKind}
    elsewhere = [watches.register(kind, "/a/b") for kind in WatchKind]
    watches.changed(change, "/a")
    assert {kind for kind, watch in here.items() if watch.fired()} == kinds
    assert not any(watch.fired() for watch in elsewhere)


async def test_resync_completes_earlier_watches_but_not_later_ones() -> None:
    watches = Watches()
    first = watches.register(DATA, "/a")
    watches.resync()
    assert await first.wait() is WatchSignal.RESYNC
    second = watches.register(DATA, "/a")
    assert not second.fired()


async def test_forgotten_watch_does_not_complete() -> None:
    watches = Watches()
    gone, kept = watches.register(DATA, "/a"), watches.register(CHILDREN, "/a")
    watches.forget(DATA, "/a")
    assert not watches.is_registered(DATA, "/a")
    watches.changed(codes.NODE_DELETED, "/a")
    assert (gone.fired(), kept.fired()) == (False, True)


async def test_watch_callback_is_called_once_with_the_first_signal() -> None:
    watch, told = OneShot(), list[WatchSignal]()
    watch.on_signal(told.append)
    watch.complete(WatchSignal.CHANGED)
    watch.complete(WatchSignal.RESYNC)
    await asyncio.sleep(0)
    assert told == [WatchSignal.CHANGED]
