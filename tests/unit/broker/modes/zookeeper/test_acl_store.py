"""The ACLs in ZooKeeper: who reads them when, and how they are written."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping

import pytest
from support.until import until

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import KafkaError, OutcomeUnknown
from minikafka.broker.ledger.record import NOTHING
from minikafka.broker.modes.zookeeper.acl_store import ZooKeeperAcls
from minikafka.broker.modes.zookeeper.notifications import KEPT_MS
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.step_gate import StepGate
from minikafka.runtime.tasks import TaskRegistry
from minikafka.security.acls import (
    NOBODY,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
    ResourcePattern,
    decode_entries,
    encode_change,
    encode_entries,
)
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import acls
from minikafka.zookeeper.nodes.faults import Faults

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders", LITERAL)
ORD = ResourcePattern(AclResourceType.TOPIC, "ord", PREFIXED)
GROUP = ResourcePattern(AclResourceType.GROUP, "g", LITERAL)
ALICE, BOB = (
    AclEntry(f"User:{name}", "*", AclOperation.READ, AclPermission.ALLOW)
    for name in ("alice", "bob")
)
Entries = frozenset[AclEntry]


class Listener:
    """The ACLs that a store has passed on."""

    def __init__(self) -> None:
        self.known: dict[ResourcePattern, Entries] = {}
        self.replaced = 0

    def replace(self, kind: PatternType, entries: Mapping[ResourcePattern, Entries]) -> None:
        self.replaced += 1
        self.known = {one: had for one, had in self.known.items() if one.pattern is not kind}
        self.known.update(entries)

    def update(self, pattern: ResourcePattern, entries: Entries) -> None:
        self.known[pattern] = entries

    def has(self, pattern: ResourcePattern, *entries: AclEntry) -> bool:
        return self.known.get(pattern, frozenset()) == set(entries)


class Broker:
    """The store of one broker, with its own session."""

    def __init__(self, world: World, number: int) -> None:
        self.session = InMemoryClient(world.ensemble)
        config = BrokerConfig.from_mapping({"broker.id": number})
        ports = Ports(config, self.session, world.clock, world.tasks, NOTHING, StepGate(), Faults())
        self.faults = ports.faults
        self.store = ZooKeeperAcls(ports)
        self.acls = Listener()

    async def start(self) -> Broker:
        await self.session.attach()
        await self.store.start(self.acls)
        return self

    async def add(self, pattern: ResourcePattern, *entries: AclEntry) -> None:
        await self.store.alter(pattern, lambda before: before | set(entries))

    async def remove(self, pattern: ResourcePattern, *entries: AclEntry) -> None:
        await self.store.alter(pattern, lambda before: before - set(entries))


class World:
    def __init__(self) -> None:
        self.ensemble = ZooKeeperInMemory()
        self.clock = LoopClock()
        self.crashes: list[tuple[str, Exception]] = []
        self.tasks = TaskRegistry(lambda name, error: self.crashes.append((name, error)))
        self.notified = 0

    def entries(self, pattern: ResourcePattern) -> Entries:
        return decode_entries(self.ensemble.nodes[acls.path_of(pattern)].data)

    def put(self, pattern: ResourcePattern, *entries: AclEntry, notify: bool = True) -> None:
        """Write ACLs as another program does."""
        self.ensemble.put(acls.path_of(pattern), encode_entries(entries))
        if notify:
            self.notify(pattern.pattern, encode_change(pattern))

    def notify(self, kind: PatternType, data: bytes) -> None:
        self.notified += 1
        self.ensemble.put(f"{acls.CHANGES[kind]}/acl_changes_{self.notified:010d}", data)

    def changes(self, kind: PatternType = LITERAL) -> list[str]:
        return self.ensemble.children(acls.CHANGES[kind])


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.tasks.close()
    assert world.crashes == []


async def test_broker_creates_kafkas_nodes_and_knows_all_acls_when_it_has_started(
    world: World,
) -> None:
    world.put(ORDERS, ALICE, notify=False)
    world.put(ORD, BOB, notify=False)
    broker = await Broker(world, 1).start()
    assert broker.acls.has(ORDERS, ALICE)
    assert broker.acls.has(ORD, BOB)
    for path in ("/kafka-acl/TransactionalId", "/kafka-acl-extended/prefixed/DelegationToken"):
        assert path in world.ensemble.nodes
    for path in ("/kafka-acl-changes", "/kafka-acl-extended-changes"):
        assert path in world.ensemble.nodes


async def test_written_acls_have_kafkas_form_and_are_known_at_once(world: World) -> None:
    broker = await Broker(world, 1).start()
    await broker.add(ORDERS, ALICE)
    assert broker.acls.has(ORDERS, ALICE)
    assert json.loads(world.ensemble.nodes["/kafka-acl/Topic/orders"].data) == {
        "version": 1,
        "acls": [
            {
                "principal": "User:alice",
                "permissionType": "Allow",
                "operation": "Read",
                "host": "*",
            }
        ],
    }
    (name,) = world.changes()
    assert name == "acl_changes_0000000000"
    assert world.ensemble.nodes[f"/kafka-acl-changes/{name}"].data == b"TOPIC:orders"


async def test_prefixed_acls_are_written_to_the_extended_nodes(world: World) -> None:
    broker = await Broker(world, 1).start()
    await broker.add(ORD, ALICE)
    assert "/kafka-acl-extended/prefixed/Topic/ord" in world.ensemble.nodes
    assert len(world.changes(PREFIXED)) == 1
    assert world.changes() == []


async def test_other_broker_follows_additions_and_removals(world: World) -> None:
    first, second = await Broker(world, 1).start(), await Broker(world, 2).start()
    await first.add(ORDERS, ALICE, BOB)
    await first.add(ORD, ALICE)
    await until(lambda: second.acls.has(ORDERS, ALICE, BOB) and second.acls.has(ORD, ALICE))
    await second.remove(ORDERS, BOB)
    await until(lambda: first.acls.has(ORDERS, ALICE))
    await second.remove(ORD, ALICE)
    await until(lambda: first.acls.has(ORD))
    assert acls.path_of(ORD) not in world.ensemble.nodes
    assert second.acls.replaced == 2, "only at the start"


async def test_concurrent_change_is_kept(world: World) -> None:
    broker = await Broker(world, 1).start()
    await broker.add(ORDERS, ALICE)
    broker.session.before_multi = lambda ops: (
        world.put(ORDERS, ALICE, BOB) if len(world.changes()) == 1 else None
    )
    await broker.remove(ORDERS, ALICE)
    assert world.entries(ORDERS) == {BOB}
    assert broker.acls.has(ORDERS, BOB)


async def test_acls_that_always_change_are_given_up(world: World) -> None:
    broker = await Broker(world, 1).start()
    await broker.add(ORDERS, ALICE)
    broker.session.before_multi = lambda ops: world.put(ORDERS, ALICE, notify=False)
    with pytest.raises(KafkaError, match="too often"):
        await broker.add(ORDERS, BOB)
    assert world.entries(ORDERS) == {ALICE}


async def test_change_without_effect_writes_nothing(world: World) -> None:
    broker = await Broker(world, 1).start()
    await broker.add(ORDERS, ALICE)
    count = len(broker.session.multis)
    await broker.add(ORDERS, ALICE)
    await broker.remove(GROUP, ALICE)
    assert len(broker.session.multis) == count


@pytest.mark.parametrize("fault", ["unanswered", "lagging"])
async def test_write_with_a_lost_answer_is_found_by_reading_the_node(
    world: World, fault: str
) -> None:
    broker = await Broker(world, 1).start()
    for change in (broker.add, broker.remove):
        broker.session.faults = [fault]
        await change(ORDERS, ALICE)
    assert broker.acls.has(ORDERS)
    assert acls.path_of(ORDERS) not in world.ensemble.nodes


async def test_lost_write_is_reported_and_changes_nothing(world: World) -> None:
    broker = await Broker(world, 1).start()
    broker.session.faults = ["lost"]
    with pytest.raises(OutcomeUnknown):
        await broker.add(ORDERS, ALICE)
    assert broker.acls.has(ORDERS)


async def test_broker_that_was_disconnected_reads_all_acls_again(world: World) -> None:
    broker = await Broker(world, 1).start()
    await broker.add(ORDERS, ALICE)
    broker.session.suspend()
    world.put(ORDERS, BOB, notify=False)
    world.put(ORD, BOB, notify=False)
    await broker.session.attach()
    await until(lambda: broker.acls.has(ORDERS, BOB) and broker.acls.has(ORD, BOB))


async def test_broker_with_a_new_session_reads_all_acls_again(world: World) -> None:
    broker = await Broker(world, 1).start()
    await broker.add(ORDERS, ALICE)
    await broker.session.expire()
    world.ensemble.delete(acls.path_of(ORDERS))
    await broker.session.attach()
    await until(lambda: broker.acls.has(ORDERS))


@pytest.mark.parametrize("data", [b"nonsense", b"NOTHING:x"])
async def test_unreadable_notification_makes_a_broker_read_all_acls(
    world: World, data: bytes
) -> None:
    broker = await Broker(world, 1).start()
    world.put(ORDERS, ALICE, notify=False)
    world.notify(LITERAL, data)
    await until(lambda: broker.acls.has(ORDERS, ALICE))
    assert len(broker.faults.found) == 1


async def test_unreadable_acls_deny_everything_until_they_are_mended(world: World) -> None:
    broker = await Broker(world, 1).start()
    await broker.add(ORDERS, ALICE)
    world.ensemble.put(acls.path_of(ORDERS), b'{"version":2}')
    world.notify(LITERAL, b"TOPIC:orders")
    await until(lambda: broker.acls.has(ORDERS, *NOBODY))
    with pytest.raises(ValueError, match="version"):
        await broker.add(ORDERS, BOB)
    world.put(ORDERS, ALICE)
    await until(lambda: broker.acls.has(ORDERS, ALICE))


async def test_old_notifications_are_deleted_and_young_ones_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = await Broker(world, 1).start()
    world.put(ORDERS, ALICE)
    await until(lambda: broker.acls.has(ORDERS, ALICE))
    now = world.clock.now
    monkeypatch.setattr(world.clock, "now", lambda: now() + KEPT_MS + 1)
    world.put(ORDERS, BOB)
    await until(lambda: world.changes() == ["acl_changes_0000000002"])
    world.put(GROUP, ALICE)
    await until(lambda: broker.acls.has(GROUP, ALICE))
    assert len(world.changes()) == 2
