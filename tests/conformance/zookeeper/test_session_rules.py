"""Watches, nodes and requests that a session keeps or loses, on every server of the fixture `zookeeper`.

`test_sessions.py` has the faults that only a real network and a real server can have.
"""

from __future__ import annotations

import asyncio

import pytest
from support.until import until
from support.zookeeper.servers import RecordingClient, Zookeeper

from minikafka.base.errors import NodeExists, NotConnected, StaleSession
from minikafka.base.ports import Create, SessionState

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED
EXPIRED, CLOSED = SessionState.EXPIRED, SessionState.CLOSED


@pytest.fixture
async def client(zookeeper: Zookeeper) -> RecordingClient:
    """A client that has created the node /a (data "0") and the ephemeral node /e."""
    client: RecordingClient = await zookeeper.connect()
    await client.create("/a", b"0")
    await client.create("/e", b"", ephemeral=True)
    return client


async def test_new_connection_keeps_session_and_ephemeral_nodes(
    zookeeper: Zookeeper, client: RecordingClient
) -> None:
    session = client.session_id
    zookeeper.cut()
    await client.until(CONNECTED)
    assert client.states() == [SUSPENDED, CONNECTED]
    assert [event.connection for event in client.seen] == [1, 2]
    assert (client.generation, client.session_id) == (1, session)
    assert client.lease_valid()
    stat = await client.exists("/e")
    assert stat is not None
    assert stat.ephemeral_owner == session


async def test_write_without_a_connection_raises_not_connected_and_is_not_sent(
    zookeeper: Zookeeper, client: RecordingClient
) -> None:
    zookeeper.refuse()
    await client.until(SUSPENDED)
    with pytest.raises(NotConnected):
        await client.set("/a", b"1", 0)
    zookeeper.accept()
    assert (await client.get("/a"))[1].version == 0


async def test_get_without_a_connection_waits_until_the_client_reconnects(
    zookeeper: Zookeeper, client: RecordingClient
) -> None:
    zookeeper.refuse()
    await client.until(SUSPENDED)
    read = asyncio.ensure_future(client.get("/a"))
    await asyncio.sleep(0.05)
    assert not read.done()
    zookeeper.accept()
    assert (await read)[0] == b"0"


async def test_session_ended_by_another_client_is_followed_by_a_new_session(
    zookeeper: Zookeeper, client: RecordingClient
) -> None:
    first, generation = client.session_id, client.generation
    events = client.events()
    await zookeeper.end_session(first, client.session_password)
    await client.until(EXPIRED)
    assert await client.connected() == generation + 1
    assert client.session_id != first
    await until(lambda: client.states()[-2:] == [EXPIRED, CONNECTED])  # may lag behind `connected`
    # The client may have resumed its session for a moment before the server ended it.
    ended = client.states().index(EXPIRED)
    assert set(client.states()[:ended]) <= {SUSPENDED, CONNECTED}
    assert client.states()[ended - 1 : ended + 2] == [SUSPENDED, EXPIRED, CONNECTED]
    expected = [generation] * (ended + 1) + [generation + 1]
    assert [(await anext(events)).generation for _ in expected] == expected
    assert await client.exists("/e") is None


async def test_writes_of_an_earlier_session_are_refused_as_stale(
    zookeeper: Zookeeper, client: RecordingClient
) -> None:
    generation = client.generation
    await zookeeper.end_session(client.session_id, client.session_password)
    await client.until(EXPIRED)
    await client.connected()
    for write in (
        client.create("/x", b"", generation=generation),
        client.multi([Create("/x", b"")], generation=generation),
    ):
        with pytest.raises(StaleSession):
            await write
    assert await client.exists("/x") is None
    await client.create("/x", b"", generation=client.generation)


async def test_get_that_waits_past_the_end_of_its_session_raises_stale_session(
    zookeeper: Zookeeper, client: RecordingClient
) -> None:
    zookeeper.refuse()
    await client.until(SUSPENDED)
    read = asyncio.ensure_future(client.get("/a"))
    await asyncio.sleep(0)
    await zookeeper.end_session(client.session_id, client.session_password)
    zookeeper.accept()
    with pytest.raises(StaleSession):
        await read


async def test_session_is_ended_only_with_its_password(
    zookeeper: Zookeeper, client: RecordingClient
) -> None:
    successor: RecordingClient = await zookeeper.connect()
    with pytest.raises(NodeExists):
        await successor.create("/e", b"", ephemeral=True)
    session = client.session_id, client.session_password
    await zookeeper.end_session(session[0], bytes(16))
    assert await successor.exists("/e") is not None
    await zookeeper.end_session(*session)
    await successor.connected()
    await successor.create("/e", b"", ephemeral=True)
    await zookeeper.end_session(*session)  # the session has ended: no error


async def test_close_ends_the_session_on_the_server(
    zookeeper: Zookeeper, client: RecordingClient
) -> None:
    assert await zookeeper.has(client, "/e")
    await client.close()
    assert not await zookeeper.has(client, "/e")
    assert client.state is CLOSED
    await client.close()
