"""Watches: the changes that complete each kind of watch, watches across reconnects, and removal of unused watches.

The tests run on every server of the fixture `zookeeper`.
"""

from __future__ import annotations

import asyncio

import pytest
from support.until import until
from support.zookeeper.servers import RecordingClient, Zookeeper

from minikafka.base.errors import Closed, NoNode, NotConnected, OutcomeUnknown
from minikafka.base.ports import (
    Create,
    Delete,
    MultiOp,
    SessionState,
    Set,
    Watch,
    WatchKind,
    WatchSignal,
)

DATA, EXISTS, CHILDREN = WatchKind.DATA, WatchKind.EXISTS, WatchKind.CHILDREN


@pytest.fixture
async def writer(zookeeper: Zookeeper) -> RecordingClient:
    """A second client, which has created /a, /a/b and /a/b/c and makes the changes."""
    writer: RecordingClient = await zookeeper.connect_directly()
    for path in ("/a", "/a/b", "/a/b/c"):
        await writer.create(path, b"")
    return writer


@pytest.fixture
async def client(zookeeper: Zookeeper, writer: RecordingClient) -> RecordingClient:
    """The client that registers the watches."""
    client: RecordingClient = await zookeeper.connect()
    return client


async def armed(client: RecordingClient, kind: WatchKind, path: str) -> Watch:
    """Register a watch, set it at the server by a read (get, exists or children), and return the watch."""
    watch = client.watch(kind, path)
    if kind is DATA:
        await client.get(path, watch=True)
    elif kind is EXISTS:
        await client.exists(path, watch=True)
    else:
        await client.children(path, watch=True)
    return watch


CHANGES: dict[str, list[MultiOp]] = {
    "set": [Set("/a/b", b"new", -1)],
    "set to the same": [Set("/a/b", b"", -1)],
    "create child": [Create("/a/b/new", b"")],
    "delete child": [Delete("/a/b/c", -1)],
    "set child": [Set("/a/b/c", b"new", -1)],
    "set parent": [Set("/a", b"new", -1)],
    "create sibling": [Create("/a/new", b"")],
    "delete": [Delete("/a/b/c", -1), Delete("/a/b", -1)],
    "replace": [Delete("/a/b/c", -1), Delete("/a/b", -1), Create("/a/b", b"")],
}
FIRES: dict[WatchKind, set[str]] = {
    DATA: {"set", "set to the same", "delete", "replace"},
    EXISTS: {"set", "set to the same", "delete", "replace"},
    CHILDREN: {"create child", "delete child", "delete", "replace"},
}


@pytest.mark.parametrize("kind", WatchKind, ids=lambda kind: kind.value)
@pytest.mark.parametrize("change", CHANGES)
async def test_watch_fires_for_exactly_the_changes_that_its_watch_kind_covers(
    client: RecordingClient, writer: RecordingClient, kind: WatchKind, change: str
) -> None:
    watch = await armed(client, kind, "/a/b")
    await writer.multi(CHANGES[change])
    await client.sync("/")  # earlier events arrive before the answer to `sync`
    assert watch.fired() == (change in FIRES[kind])
    if watch.fired():
        assert await watch.wait() is WatchSignal.CHANGED


async def test_watch_on_a_missing_node_fires_when_it_is_created(
    client: RecordingClient, writer: RecordingClient
) -> None:
    watch = await armed(client, EXISTS, "/later")
    await writer.create("/later", b"")
    async with asyncio.timeout(10):
        assert await watch.wait() is WatchSignal.CHANGED


async def test_data_watch_is_not_armed_on_a_missing_node(
    client: RecordingClient, writer: RecordingClient
) -> None:
    watch = client.watch(DATA, "/later")
    with pytest.raises(NoNode):
        await client.get("/later", watch=True)
    await writer.create("/later", b"")
    await client.sync("/")
    assert not watch.fired()


async def test_watch_gives_one_signal_until_it_is_armed_again(
    client: RecordingClient, writer: RecordingClient, zookeeper: Zookeeper
) -> None:
    first = await armed(client, DATA, "/a")
    for _ in range(5):
        await writer.set("/a", b"x", -1)
    await client.sync("/")
    assert first.fired()
    assert zookeeper.events == 1
    second = await armed(client, DATA, "/a")
    assert not second.fired()
    await writer.set("/a", b"x", -1)
    await client.sync("/")
    assert second.fired()


async def test_one_event_of_the_server_completes_all_watches_on_a_node(
    client: RecordingClient, writer: RecordingClient, zookeeper: Zookeeper
) -> None:
    watches = [await armed(client, DATA, "/a") for _ in range(3)]
    watches.append(await armed(client, EXISTS, "/a"))
    await writer.set("/a", b"x", -1)
    await client.sync("/")
    assert [watch.fired() for watch in watches] == [True] * 4
    assert zookeeper.events == 1


async def test_client_gets_its_watch_event_before_the_response_to_its_own_write(
    client: RecordingClient,
) -> None:
    watch = await armed(client, DATA, "/a")
    answer = asyncio.ensure_future(client.set("/a", b"x", -1))
    order: list[str] = []
    watch.on_signal(lambda _: order.append("watch"))
    answer.add_done_callback(lambda _: order.append("answer"))
    await answer
    await until(lambda: len(order) == 2)
    assert order == ["watch", "answer"]


async def test_watch_callback_added_after_the_change_is_called_at_once(
    client: RecordingClient, writer: RecordingClient
) -> None:
    watch = await armed(client, DATA, "/a")
    await writer.set("/a", b"x", -1)
    await client.sync("/")
    signals: list[WatchSignal] = []
    watch.on_signal(signals.append)
    assert signals == [WatchSignal.CHANGED]


async def test_watch_still_fires_after_a_task_that_waited_for_it_was_cancelled(
    client: RecordingClient, writer: RecordingClient
) -> None:
    watch = await armed(client, DATA, "/a")
    impatient = asyncio.ensure_future(watch.wait())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.wait([impatient])
    await writer.set("/a", b"x", -1)
    async with asyncio.timeout(10):
        assert await watch.wait() is WatchSignal.CHANGED


@pytest.mark.parametrize("kind", WatchKind, ids=lambda kind: kind.value)
async def test_watch_that_was_removed_gives_no_event(
    client: RecordingClient, writer: RecordingClient, zookeeper: Zookeeper, kind: WatchKind
) -> None:
    watch = await armed(client, kind, "/a")
    await client.unwatch(kind, "/a")
    await client.unwatch(kind, "/a")  # no watch is registered: no error
    await writer.multi([Set("/a", b"x", -1), Create("/a/x", b"")])
    await client.sync("/")
    assert not watch.fired()
    assert zookeeper.events == 0


async def test_exists_watch_stays_when_the_data_watch_is_removed(
    client: RecordingClient, writer: RecordingClient
) -> None:
    data, exists = await armed(client, DATA, "/a"), await armed(client, EXISTS, "/a")
    await client.unwatch(DATA, "/a")
    await writer.set("/a", b"x", -1)
    await client.sync("/")
    assert (data.fired(), exists.fired()) == (False, True)


async def test_unwatch_leaves_no_watch_on_the_server(
    client: RecordingClient, zookeeper: Zookeeper
) -> None:
    before = await zookeeper.watched_paths(client)
    paths = ["/a", "/a/b", "/a/b/c"]
    for path in paths:
        await armed(client, DATA, path)
        await armed(client, CHILDREN, path)
    assert await zookeeper.watched_paths(client) == before + 3
    for path in paths:
        await client.unwatch(DATA, path)
        await client.unwatch(CHILDREN, path)
    assert await zookeeper.watched_paths(client) == before


async def test_new_connection_completes_every_watch_with_resync(
    client: RecordingClient, writer: RecordingClient, zookeeper: Zookeeper
) -> None:
    watches = [await armed(client, kind, "/a") for kind in WatchKind]
    unarmed = client.watch(DATA, "/a/b")
    zookeeper.cut()
    async with asyncio.timeout(10):
        for watch in [*watches, unarmed]:
            assert await watch.wait() is WatchSignal.RESYNC
    assert client.state is SessionState.CONNECTED, "read again means that one can"
    again = await armed(client, DATA, "/a")
    await writer.set("/a", b"x", -1)
    async with asyncio.timeout(10):
        assert await again.wait() is WatchSignal.CHANGED


async def test_no_change_is_missed_when_the_connection_is_cut_repeatedly(
    client: RecordingClient, writer: RecordingClient, zookeeper: Zookeeper
) -> None:
    """A client that reads the node again after every watch signal reads the last value in the end."""
    seen: list[bytes] = []

    async def consume() -> None:
        while not seen or seen[-1] != b"last":
            watch = client.watch(DATA, "/a")
            try:
                seen.append((await client.get("/a", watch=True))[0])
            except (NotConnected, OutcomeUnknown):
                continue
            await watch.wait() if seen[-1] != b"last" else None

    consumer = asyncio.ensure_future(consume())
    for number in range(8):
        await writer.set("/a", b"%d" % number, -1)
        zookeeper.cut()
        await asyncio.sleep(0.02)
    await writer.set("/a", b"last", -1)
    async with asyncio.timeout(20):
        await consumer


async def test_close_completes_every_watch_with_resync(client: RecordingClient) -> None:
    watch = await armed(client, DATA, "/a")
    await client.close()
    async with asyncio.timeout(1):
        assert await watch.wait() is WatchSignal.RESYNC
    with pytest.raises(Closed):
        client.watch(DATA, "/a")
