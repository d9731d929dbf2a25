"""Settings that change while a broker runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from support.until import until

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import CoordinationError, ErrorCode, KafkaError
from minikafka.base.metrics import Metrics
from minikafka.base.ports import Check
from minikafka.broker.clients.quotas import BrokerQuotas
from minikafka.broker.ledger.record import NOTHING
from minikafka.broker.modes.controller.fenced_writes import ControllerConfigWrites
from minikafka.broker.modes.zookeeper.config_changes import ZooKeeperConfigChanges
from minikafka.broker.modes.zookeeper.notifications import KEPT_MS
from minikafka.broker.settings.config_updates import ConfigUpdates
from minikafka.broker.settings.dynamic_config import DynamicConfig
from minikafka.broker.settings.dynamic_stores import DynamicStores
from minikafka.runtime.tasks import TaskRegistry
from minikafka.security import scram
from minikafka.security.credentials import KnownCredentials
from minikafka.security.quotas import DEFAULT, QuotaEntity
from minikafka.simulation.clocks import LoopClock
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import layout
from minikafka.zookeeper.nodes.faults import Faults

pytestmark = pytest.mark.row("R71")

UNCLEAN = {"unclean.leader.election.enable": "true"}


class Replicas:
    def __init__(self) -> None:
        self.configured: list[list[str] | None] = []
        self.defaults: list[BrokerConfig] = []

    async def topics_configured(self, topics: Sequence[str] | None) -> None:
        self.configured.append(None if topics is None else list(topics))

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        self.defaults.append(config)


class Controller:
    def __init__(self) -> None:
        self.is_active = False
        self.generation = 1
        self.defaults: list[BrokerConfig] = []
        self.unclean: list[list[str] | None] = []

    def fence(self) -> Check:
        if not self.is_active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return Check(layout.CONTROLLER_EPOCH, 0)

    def set_broker_defaults(self, config: BrokerConfig) -> None:
        self.defaults.append(config)

    def unclean_election_enabled(self, topics: Sequence[str] | None) -> None:
        self.unclean.append(None if topics is None else list(topics))


class World:
    def __init__(self) -> None:
        self.ensemble = ZooKeeperInMemory()
        for path in layout.SHARED:
            self.ensemble.put(path)
        self.ensemble.put(layout.CONTROLLER_EPOCH, b"1")
        self.clock = LoopClock()
        self.ensemble.wall_ms = self.clock.wall_ms
        self.session = InMemoryClient(self.ensemble)
        self.settings = DynamicConfig(BrokerConfig.from_mapping({"broker.id": 1}))
        self.replicas = Replicas()
        self.controller = Controller()
        self.crashes: list[tuple[str, Exception]] = []
        self.tasks = TaskRegistry(lambda name, error: self.crashes.append((name, error)))
        controller: Any = self.controller
        self.credentials = KnownCredentials(b"secret")
        stores = DynamicStores(self.settings.static, bytes)
        self.quotas = BrokerQuotas(self.settings.static, self.clock, Metrics(), {})
        listener = ConfigUpdates(
            self.settings, self.replicas, controller, self.credentials, stores, self.quotas
        )
        writes = ControllerConfigWrites(self.session, controller, NOTHING)
        self.changes = ZooKeeperConfigChanges(
            self.session, self.clock, self.tasks, 1, listener, writes, Faults()
        )
        self._sequence = 0

    def write(self, path: str, overrides: dict[str, str], notification: bytes) -> None:
        """Write settings and then the notification, as Kafka's tools and other brokers do."""
        self.ensemble.put(path, layout.encode_config(overrides))
        self.notify(notification)

    def notify(self, notification: bytes) -> None:
        self._sequence += 1
        self.ensemble.put(f"{layout.CONFIG_CHANGE_PREFIX}{self._sequence:010d}", notification)

    def write_topic(self, topic: str, **overrides: str) -> None:
        values = {name.replace("_", "."): value for name, value in overrides.items()}
        path = layout.topic_config_path(topic)
        self.write(path, values, layout.encode_config_change("topics", topic))

    def write_broker(self, name: str, overrides: dict[str, str]) -> None:
        path = layout.broker_config_path(name)
        self.write(path, overrides, layout.encode_config_change("brokers", name))

    def write_user(self, node: str, overrides: dict[str, str]) -> None:
        path = layout.user_config_path(node)
        self.write(path, overrides, layout.encode_config_change("users", node))

    def put_quotas(self, path: str, quotas: dict[str, str]) -> None:
        """Write the node of an owner of quotas, and the nodes above it, without a notification."""
        parent, _, _ = path.rpartition("/")
        above = ""
        for part in parent.split("/"):
            above += f"/{part}"
            if f"/config{above}" not in self.ensemble.nodes:
                self.ensemble.put(f"/config{above}", b"")
        self.ensemble.put(f"/config/{path}", layout.encode_config(quotas))

    def names(self) -> list[str]:
        return self.ensemble.children(layout.CONFIG_CHANGES)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    await world.session.attach()
    yield world
    await world.tasks.close()
    assert world.crashes == []


async def test_broker_settings_from_zookeeper_are_applied_when_start_returns(world: World) -> None:
    world.write_broker("1", {"min.insync.replicas": "3"})
    world.write_broker("<default>", {"min.insync.replicas": "2", **UNCLEAN})
    await world.changes.start()
    assert world.settings.current.min_insync_replicas == 3
    assert world.replicas.defaults == world.controller.defaults == [world.settings.current]


async def test_topic_settings_are_applied_after_their_notification(
    world: World,
) -> None:
    await world.changes.start()
    world.write_topic("t", min_insync_replicas="2")
    await until(lambda: ["t"] in world.replicas.configured)
    world.write_topic("u", retention_ms="1")
    await until(lambda: ["u"] in world.replicas.configured)


@pytest.mark.parametrize(
    "notification",
    [
        b'{"version":2,"entity_path":"topics/t"}',
        b'{"version":1,"entity_type":"topics","entity_name":"t"}',
    ],
)
async def test_config_change_notifications_of_versions_1_and_2_are_understood(
    world: World, notification: bytes
) -> None:
    await world.changes.start()
    world.notify(notification)
    await until(lambda: ["t"] in world.replicas.configured)


async def test_unreadable_notification_does_not_delay_the_next(world: World) -> None:
    await world.changes.start()
    world.notify(b"nonsense")
    world.notify(b'{"version":2,"entity_path":"clients/c"}')
    world.notify(b'{"version":2,"entity_path":"nothing"}')
    world.write_topic("t")
    await until(lambda: ["t"] in world.replicas.configured)


@pytest.mark.parametrize("name", ["\ud800", "..", "a/b", "t\0", "ü", "", "x" * 250])
async def test_notification_of_an_invalid_topic_name_is_logged_once_and_skipped(
    world: World, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await world.changes.start()
    world.notify(json.dumps({"version": 2, "entity_path": f"topics/{name}"}).encode())
    world.write_topic("t")
    await until(lambda: ["t"] in world.replicas.configured)
    await world.changes.apply_now()
    path = f"{layout.CONFIG_CHANGE_PREFIX}{1:010d}"
    assert caplog.text.count(f"{path} is not readable and is skipped") == 1
    assert world.crashes == []


async def test_settings_of_another_broker_are_ignored(world: World) -> None:
    await world.changes.start()
    world.write_broker("2", {"min.insync.replicas": "2"})
    world.write_topic("t")
    await until(lambda: ["t"] in world.replicas.configured)
    assert world.settings.current == world.settings.static


@pytest.mark.row("R63")
async def test_unclean_election_enabled_for_a_topic_is_reported_to_the_controller(
    world: World,
) -> None:
    world.controller.is_active = True
    await world.changes.start()
    world.write_topic("t", unclean_leader_election_enable="true")
    await until(lambda: world.controller.unclean)
    world.write_topic("u", unclean_leader_election_enable="false")
    await until(lambda: ["u"] in world.replicas.configured)
    assert world.controller.unclean == [["t"]]


async def test_apply_now_applies_broker_settings_without_waiting_for_the_watch(
    world: World,
) -> None:
    await world.changes.start()
    world.write_broker("1", {"min.insync.replicas": "2"})
    await world.changes.apply_now()
    assert world.settings.current.min_insync_replicas == 2


async def test_all_settings_are_read_again_after_a_reconnect(
    world: World,
) -> None:
    await world.changes.start()
    before = len(world.replicas.configured)
    world.session.suspend()
    path = layout.broker_config_path("1")
    world.ensemble.put(path, layout.encode_config({"min.insync.replicas": "2"}))
    await world.session.attach()
    await until(lambda: world.settings.current.min_insync_replicas == 2)
    await until(lambda: None in world.replicas.configured[before:])


async def test_changes_are_applied_after_each_read_that_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Notifications may come and go while they cannot be read, so that all settings are read again."""
    await world.changes.start()
    children, failures = world.session.children, 0

    async def fail(*arguments: Any, **options: Any) -> Any:
        nonlocal failures
        if failures:
            failures -= 1
            raise CoordinationError("the server has an error")
        return await children(*arguments, **options)

    monkeypatch.setattr(world.session, "children", fail)
    for number in range(2, 5):
        failures = 2
        before = len(world.replicas.configured)
        world.write_broker("1", {"min.insync.replicas": str(number)})
        await until(lambda number=number: world.settings.current.min_insync_replicas == number)  # type: ignore[misc]
        await until(lambda before=before: None in world.replicas.configured[before:])  # type: ignore[misc]


async def test_controller_deletes_old_notifications_in_a_fenced_multi(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write_topic("old")
    world.controller.is_active = True
    await world.changes.start()
    now = world.clock.now
    monkeypatch.setattr(world.clock, "now", lambda: now() + KEPT_MS + 1)
    world.write_topic("young")
    await until(lambda: len(world.names()) == 1)
    (ops,) = world.session.multis
    assert ops[0] == Check(layout.CONTROLLER_EPOCH, 0)
    world.write_topic("next")
    await until(lambda: ["next"] in world.replicas.configured)
    assert len(world.names()) == 2


@pytest.mark.parametrize("ahead_ms", [-10 * KEPT_MS, 10 * KEPT_MS])
async def test_controller_keeps_young_notifications_whatever_the_clocks_say(
    world: World, ahead_ms: int
) -> None:
    world.ensemble.wall_ms = lambda: world.clock.wall_ms() - ahead_ms
    world.controller.is_active = True
    await world.changes.start()
    for topic in ("a", "b"):
        world.write_topic(topic)
        await until(lambda topic=topic: [topic] in world.replicas.configured)
    assert len(world.names()) == 2


async def test_brokers_that_are_not_the_controller_delete_no_notifications(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.write_topic("old")
    await world.changes.start()
    now = world.clock.now
    monkeypatch.setattr(world.clock, "now", lambda: now() + KEPT_MS + 1)
    world.write_topic("older")
    await until(lambda: ["older"] in world.replicas.configured)
    assert len(world.names()) == 2
    assert world.session.multis == []


async def test_broker_settings_are_applied_in_order_when_apply_now_overlaps_the_watch(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.changes.start()
    get_many = world.session.get_many
    reading, go_on = asyncio.Event(), asyncio.Event()

    async def get_many_slowly(paths: Sequence[str]) -> Any:
        found = await get_many(paths)
        if layout.broker_config_path("1") in paths and not reading.is_set():
            reading.set()
            await go_on.wait()
        return found

    monkeypatch.setattr(world.session, "get_many", get_many_slowly)
    world.write_broker("1", {"min.insync.replicas": "2"})
    await reading.wait()
    world.write_broker("1", {"min.insync.replicas": "3"})
    applying = asyncio.ensure_future(world.changes.apply_now())
    await world.ensemble.time_for_requests()
    go_on.set()
    await applying
    assert [config.min_insync_replicas for config in world.replicas.defaults] == [2, 3]


# ---- users


def credential(password: str) -> dict[str, str]:
    sha_256 = scram.BY_NAME["SCRAM-SHA-256"]
    return {
        sha_256.name: scram.encode_credential(
            scram.new_credential(sha_256, password, 4096, password.encode())
        )
    }


def salt_of(world: World, user: str) -> bytes | None:
    found = world.credentials.find("SCRAM-SHA-256", user)
    return None if found is None else found.salt


async def test_credentials_of_all_users_are_known_when_start_returns(world: World) -> None:
    for number in range(120):
        world.write_user(f"user-{number}%2F", credential(f"{number}"))
    world.write_user("<default>", {"producer_byte_rate": "1"})
    await world.changes.start()
    assert [salt_of(world, f"user-{number}/") for number in range(120)] == [
        b"%d" % number for number in range(120)
    ]


async def test_changed_credential_is_known_after_its_notification(world: World) -> None:
    world.write_user("alice", credential("old"))
    await world.changes.start()
    world.write_user("alice", credential("new"))
    await until(lambda: salt_of(world, "alice") == b"new")
    world.write_user("alice", {})
    await until(lambda: salt_of(world, "alice") is None)


async def test_user_that_was_removed_during_a_disconnection_is_forgotten(world: World) -> None:
    world.write_user("alice", credential("a"))
    await world.changes.start()
    world.ensemble.delete("/config/users/alice")
    world.session.reconnect()
    await until(lambda: salt_of(world, "alice") is None)


@pytest.mark.parametrize("node", ["alice/clients/c", "..", "al ice", "<default>", "%zz"])
async def test_notification_about_another_node_below_users_stops_nothing(
    world: World, node: str
) -> None:
    await world.changes.start()
    world.notify(layout.encode_config_change("users", node))
    world.write_user("bob", credential("b"))
    await until(lambda: salt_of(world, "bob") == b"b")


async def test_malformed_credential_removes_the_former_one_and_is_logged_without_its_text(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.write_user("alice", credential("a"))
    await world.changes.start()
    world.write_user("alice", {"SCRAM-SHA-256": "salt=the-secret"})
    await until(lambda: salt_of(world, "alice") is None)
    assert "credential of user alice is malformed" in caplog.text
    assert "the-secret" not in caplog.text


# ---- quotas

RATE = {"producer_byte_rate": "1000"}


@pytest.mark.parametrize(
    ("path", "owner"),
    [
        ("users/al%20ice", QuotaEntity("al ice")),
        ("users/<default>", QuotaEntity(DEFAULT)),
        ("users/alice/clients/c%2F1", QuotaEntity("alice", "c/1")),
        ("users/<default>/clients/<default>", QuotaEntity(DEFAULT, DEFAULT)),
        ("clients/c", QuotaEntity(client_id="c")),
        ("clients/<default>", QuotaEntity(client_id=DEFAULT)),
    ],
)
async def test_quotas_are_known_at_the_start_and_change_with_notifications(
    world: World, path: str, owner: QuotaEntity
) -> None:
    world.put_quotas(path, RATE)
    await world.changes.start()
    assert world.quotas.stored == {owner: {"producer_byte_rate": 1000.0}}
    kind, _, name = path.partition("/")
    change = layout.encode_config_change(kind, name)
    world.write(f"/config/{path}", {"producer_byte_rate": "7"}, change)
    await until(lambda: world.quotas.stored == {owner: {"producer_byte_rate": 7.0}})
    world.write(f"/config/{path}", {}, change)
    await until(lambda: world.quotas.stored == {})


async def test_quota_of_connections_is_known_by_address(world: World) -> None:
    world.put_quotas("ips/10.0.0.1", {"connection_creation_rate": "5", **RATE})
    world.put_quotas("ips/<default>", {"connection_creation_rate": "9"})
    await world.changes.start()
    assert world.quotas.connection_rate("10.0.0.1") == 5
    assert world.quotas.connection_rate("10.0.0.2") == 9
    assert not world.quotas.is_metered


async def test_malformed_quota_and_node_name_are_logged_and_others_apply(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.put_quotas("clients/%zz", RATE)
    world.put_quotas("clients/c", {"producer_byte_rate": "fast", "consumer_byte_rate": "5"})
    await world.changes.start()
    assert world.quotas.stored == {QuotaEntity(client_id="c"): {"consumer_byte_rate": 5.0}}
    assert "Ignoring a quota of client id 'c'" in caplog.text
    assert "/config/clients/%zz" in caplog.text


async def test_quotas_removed_during_a_disconnection_no_longer_apply(world: World) -> None:
    world.put_quotas("users/alice/clients/c", RATE)
    world.put_quotas("users/bob", RATE)
    await world.changes.start()
    assert len(world.quotas.stored) == 2
    world.ensemble.delete("/config/users/alice/clients/c")
    world.ensemble.delete("/config/users/bob")
    world.session.reconnect()
    await until(lambda: world.quotas.stored == {})
