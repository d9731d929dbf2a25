"""A session with three servers: when its server dies or stops answering, the session moves to another server."""

from __future__ import annotations

import asyncio
import signal

import pytest
from support.zookeeper.zookeepers import Client, Connect, in_thread

from minikafka.base.errors import NotConnected, OutcomeUnknown
from minikafka.base.ports import SessionState
from minikafka.zookeeper.processes.apache import ApacheZooKeeper

CONNECTED, SUSPENDED = SessionState.CONNECTED, SessionState.SUSPENDED


@pytest.fixture
async def client(ensemble: list[ApacheZooKeeper], connect: Connect) -> Client:
    """A client of all three servers that has created the node /a and the ephemeral node /e."""
    client = await connect(",".join(one.connect for one in ensemble), session_ms=4_000)
    await client.create("/a", b"0")
    await client.create("/e", b"", ephemeral=True)
    return client


async def server_of(client: Client, ensemble: list[ApacheZooKeeper]) -> ApacheZooKeeper:
    """Return the server that the client is connected to."""
    for one in ensemble:
        if f"sid=0x{client.session_id:x}," in await one.four_letter_word("cons", 20_000):
            return one
    raise AssertionError("no server knows the connection")


async def leader_of(ensemble: list[ApacheZooKeeper]) -> ApacheZooKeeper:
    for one in ensemble:
        if (await one.status()).get("mode") == "leader":
            return one
    raise AssertionError("no leader")


async def lives(client: Client, ensemble: list[ApacheZooKeeper]) -> None:
    """Check that the client can write in its first session; its server must have the write and ephemeral node /e."""
    await client.until(CONNECTED)
    await client.connected()
    while True:
        try:
            stat = await client.set("/a", b"1", -1)
            break
        except (OutcomeUnknown, NotConnected):
            await client.connected()
    assert client.generation == 1
    assert SessionState.EXPIRED not in client.states()
    other = await server_of(client, ensemble)
    owner, version = await in_thread(
        lambda kazoo: (
            kazoo.exists(client.root + "/e").ephemeralOwner,
            kazoo.exists(client.root + "/a").version,
        ),
        other,
    )  # type: ignore[misc]
    assert (owner, version) == (client.session_id, stat.version)


@pytest.mark.parametrize("how", ["killed", "stopped", "ended"])
async def test_session_moves_to_another_server_when_its_server_stops(
    ensemble: list[ApacheZooKeeper], client: Client, how: str
) -> None:
    server = await server_of(client, ensemble)
    if how == "killed":
        await server.kill()
    elif how == "stopped":
        server.signal(signal.SIGSTOP)
    else:
        await server.stop()
    await client.until(SUSPENDED)
    await lives(client, [one for one in ensemble if one is not server])


async def test_session_survives_an_election_in_the_ensemble(
    ensemble: list[ApacheZooKeeper], client: Client
) -> None:
    leader = await leader_of(ensemble)
    await leader.kill()
    await client.until(SUSPENDED)  # every server drops its clients while it has no leader
    await lives(client, [one for one in ensemble if one is not leader])


async def test_writes_fail_without_a_quorum_and_succeed_once_it_is_back(
    ensemble: list[ApacheZooKeeper], client: Client
) -> None:
    for one in ensemble[:2]:
        await one.kill()
    await client.until(SUSPENDED)
    with pytest.raises((NotConnected, OutcomeUnknown)):  # the third server may not have noticed yet
        await client.set("/a", b"1", -1)
    ensemble[0].spawn()
    await lives(client, [ensemble[0], ensemble[2]])


async def test_many_sessions_survive_the_death_of_their_server(
    ensemble: list[ApacheZooKeeper], connect: Connect
) -> None:
    """With the session layer of unmodified aiozk, one of eight sessions was lost in this test."""
    servers = ",".join(one.connect for one in ensemble)
    clients = [await connect(servers, session_ms=4_000) for _ in range(8)]
    for number, client in enumerate(clients):
        await client.create(f"/e{number}", b"", ephemeral=True)
    victim = await server_of(clients[0], ensemble)
    await victim.kill()
    async with asyncio.timeout(20):
        for number, client in enumerate(clients):
            await client.connected()
            stat = await client.exists(f"/e{number}")
            assert stat is not None
            assert stat.ephemeral_owner == client.session_id
    assert [client.generation for client in clients] == [1] * 8


async def test_sync_shows_writes_that_another_client_made_on_another_server(
    ensemble: list[ApacheZooKeeper], connect: Connect
) -> None:
    """One reader is connected to ZooKeeper's leader, which may answer `sync` before it applies all committed writes."""
    clients = [await connect(one.connect) for one in ensemble]
    await clients[0].create("/a", b"0")
    for version in range(60):
        here, there = clients[version % 3], clients[(version + version // 3 % 2 + 1) % 3]
        await here.set("/a", b"x", version)
        await there.sync("/a")
        assert (await there.get("/a"))[1].version == version + 1
