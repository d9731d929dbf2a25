"""Delegation tokens in ZooKeeper, and the brokers that follow their changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from support.until import until

from minikafka.broker.ledger.record import NOTHING
from minikafka.broker.modes.zookeeper.notifications import KEPT_MS
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.modes.zookeeper.token_store import ZooKeeperTokens
from minikafka.runtime.tasks import TaskRegistry
from minikafka.security.tokens import DelegationToken, KnownTokens
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import tokens
from minikafka.zookeeper.nodes.faults import Faults

TOKEN = DelegationToken("t-1", "User:alice", "User:alice", (), 1, 2, 3)


class Broker:
    """One broker: its session, its store and the tokens that it knows."""

    def __init__(self, ensemble: ZooKeeperInMemory, clock: LoopClock) -> None:
        self.session = InMemoryClient(ensemble)
        self.crashes: list[tuple[str, Exception]] = []
        self.tasks = TaskRegistry(lambda name, error: self.crashes.append((name, error)))
        unused: Any = None
        ports = Ports(unused, self.session, clock, self.tasks, NOTHING, unused, Faults())
        self.store = ZooKeeperTokens(ports)
        self.known = KnownTokens("secret", clock.wall_ms)

    async def start(self) -> None:
        await self.session.attach()
        await self.store.start(self.known)


class World:
    def __init__(self) -> None:
        self.ensemble = ZooKeeperInMemory()
        self.clock = LoopClock()
        self.ensemble.wall_ms = self.clock.wall_ms
        self.brokers = [Broker(self.ensemble, self.clock) for _ in range(2)]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    for broker in world.brokers:
        await broker.tasks.close()
        assert broker.crashes == []


async def test_created_token_is_known_to_its_broker_at_once_and_to_others_soon(world: World):
    one, other = world.brokers
    await one.start()
    await other.start()
    await one.store.create(TOKEN)
    assert list(one.known) == [TOKEN]
    await until(lambda: list(other.known) == [TOKEN])


async def test_tokens_are_known_when_start_returns(world: World):
    one, other = world.brokers
    await one.start()
    for number in range(120):
        await one.store.create(replace(TOKEN, id=f"t-{number}"))
    await other.start()
    assert len(list(other.known)) == 120


async def test_changed_and_removed_token_is_known_to_other_brokers(world: World):
    one, other = world.brokers
    await one.start()
    await other.start()
    await one.store.create(TOKEN)
    later = replace(TOKEN, expires_ms=9)
    assert await one.store.change(later)
    await until(lambda: list(other.known) == [later])
    await one.store.remove(TOKEN.id)
    assert list(one.known) == []
    await until(lambda: list(other.known) == [])


async def test_removed_token_is_not_made_again_by_a_broker_that_still_knows_it(world: World):
    one, other = world.brokers
    await one.start()
    await one.store.create(TOKEN)
    await other.start()
    world.ensemble.delete(f"{tokens.TOKENS}/t-1")
    assert not await other.store.change(replace(TOKEN, expires_ms=9))
    assert list(other.known) == []
    assert world.ensemble.children(tokens.TOKENS) == []


async def test_token_that_is_already_gone_is_removed_without_an_error(world: World):
    one, _ = world.brokers
    await one.start()
    await one.store.remove("t-9")


async def test_refresh_reads_tokens_that_were_written_before(world: World):
    one, other = world.brokers
    await one.start()
    await other.start()
    await one.store.create(TOKEN)
    await other.store.refresh()
    assert list(other.known) == [TOKEN]


async def test_token_that_was_removed_during_a_disconnection_is_forgotten(world: World):
    one, _ = world.brokers
    await one.start()
    await one.store.create(TOKEN)
    await until(lambda: one.store._notifications._applied)
    world.ensemble.delete(f"{tokens.TOKENS}/t-1")
    one.session.reconnect()
    await until(lambda: list(one.known) == [])


@pytest.mark.parametrize("data", [b"", b"../x", b"\xff", b"no-such-token"])
async def test_notification_that_names_no_token_stops_nothing(world: World, data: bytes):
    one, other = world.brokers
    await one.start()
    await other.start()
    world.ensemble.put(f"{tokens.CHANGES}/token_change_9999999999", data)
    await one.store.create(TOKEN)
    await until(lambda: list(other.known) == [TOKEN])


async def test_malformed_token_in_zookeeper_is_forgotten_and_logged(
    world: World, caplog: pytest.LogCaptureFixture
):
    one, _ = world.brokers
    await one.start()
    await one.store.create(TOKEN)
    world.ensemble.put(f"{tokens.TOKENS}/t-1", b"{}")
    world.ensemble.put(f"{tokens.CHANGES}/token_change_9999999999", b"t-1")
    await until(lambda: list(one.known) == [])
    assert "/delegation_token/tokens/t-1" in caplog.text


async def test_old_notifications_are_deleted(world: World, monkeypatch: pytest.MonkeyPatch):
    one, _ = world.brokers
    await one.start()
    await one.store.create(TOKEN)
    await until(lambda: one.store._notifications._applied)
    now = world.clock.now()
    monkeypatch.setattr(world.clock, "now", lambda: now + KEPT_MS + 1)
    await one.store.create(replace(TOKEN, id="t-2"))
    await until(lambda: len(world.ensemble.children(tokens.CHANGES)) == 1)
