"""Registered watches and the signals that complete them."""

from __future__ import annotations

import asyncio

import pytest

from minikafka.base.ports import WatchKind, WatchSignal
from minikafka.zk import codec
from minikafka.zk.watches import OneShot, TreeWatch, Watches

DATA, EXISTS, CHILDREN = WatchKind.DATA, WatchKind.EXISTS, WatchKind.CHILDREN


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        (codec.NODE_CREATED, {DATA, EXISTS}),
        (codec.NODE_DELETED, {DATA, EXISTS, CHILDREN}),
        (codec.DATA_CHANGED, {DATA, EXISTS}),
        (codec.CHILDREN_CHANGED, {CHILDREN}),
        (99, set()),
    ],
)
async def test_a_change_completes_the_watches_of_its_kinds_on_its_path(
    change: int, kinds: set[WatchKind]
) -> None:
    watches = Watches()
    here = {kind: watches.register(kind, "/a") for kind in WatchKind}
    elsewhere = [watches.register(kind, "/a/b") for kind in WatchKind]
    watches.changed(change, "/a")
    assert {kind for kind, watch in here.items() if watch.fired()} == kinds
    assert not any(watch.fired() for watch in elsewhere)


async def test_a_resync_completes_all_once() -> None:
    watches = Watches()
    first = watches.register(DATA, "/a")
    watches.resync()
    assert await first.wait() is WatchSignal.RESYNC
    second = watches.register(DATA, "/a")
    assert not second.fired()


async def test_what_was_forgotten_is_not_completed() -> None:
    watches = Watches()
    gone, kept = watches.register(DATA, "/a"), watches.register(DATA, "/a")
    watches.discard(DATA, "/a", gone)
    watches.discard(DATA, "/a", gone)
    assert watches.is_registered(DATA, "/a")
    watches.changed(codec.DATA_CHANGED, "/a")
    assert (gone.fired(), kept.fired()) == (False, True)
    watches.register(DATA, "/a")
    watches.forget(DATA, "/a")
    assert not watches.is_registered(DATA, "/a")


async def test_a_callback_comes_once_with_the_signal() -> None:
    watch, told = OneShot(), list[WatchSignal]()
    watch.on_signal(told.append)
    watch.complete(WatchSignal.CHANGED)
    watch.complete(WatchSignal.RESYNC)
    await asyncio.sleep(0)
    assert told == [WatchSignal.CHANGED]


async def nothing(tree: TreeWatch) -> None:
    """Nothing to release."""


async def test_a_tree_tells_each_path_once_until_it_is_taken() -> None:
    tree = TreeWatch("/a", nothing)
    for path in ("/a/1", "/a/2", "/a/1"):
        tree.put(path)
    assert [await anext(tree), await anext(tree)] == ["/a/1", "/a/2"]
    tree.put("/a/1")
    assert await anext(tree) == "/a/1"


async def test_read_everything_stands_for_every_path() -> None:
    tree = TreeWatch("/a", nothing)
    tree.put("/a/1")
    tree.put(None)
    tree.put("/a/2")
    assert await anext(tree) is None
    tree.put("/a/3")
    assert await anext(tree) == "/a/3"


@pytest.mark.parametrize(
    ("root", "path", "is_covered"),
    [("/a", "/a", True), ("/a", "/a/b", True), ("/a", "/ab", False), ("/", "/x", True)],
)
async def test_a_tree_is_its_root_and_what_lies_below(
    root: str, path: str, is_covered: bool
) -> None:
    assert TreeWatch(root, nothing).covers(path) is is_covered


async def test_a_tree_that_ended_gives_what_it_has_and_stops() -> None:
    tree = TreeWatch("/a", nothing)
    tree.put("/a")
    tree.end()
    assert [signal async for signal in tree] == ["/a"]
