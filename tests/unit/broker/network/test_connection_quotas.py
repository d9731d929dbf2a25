"""The limits of connections of one broker: who is read, who waits and who is closed."""

from __future__ import annotations

from typing import Any, cast

import pytest

from minikafka.base.config import BrokerConfig
from minikafka.base.metrics import Metrics
from minikafka.broker.clients.quotas import BrokerQuotas
from minikafka.broker.network.connection_quotas import ConnectionQuotas
from minikafka.broker.services import ClientConnection
from minikafka.security.quotas import CONNECTION, QuotaEntity
from minikafka.simulation.clocks import ManualClock

TWO_LISTENERS = {
    "listeners": "IN://localhost:1,OUT://localhost:2",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT",
    "inter.broker.listener.name": "IN",
}
MOST = "listener.name.out.max.connections"
RATE = "max.connection.creation.rate"


class Socket:
    """The link of a connection, of which it is known whether it is read or closed."""

    state = "read"

    def pause_reading(self) -> None:
        self.state = "waits"

    def resume_reading(self) -> None:
        self.state = "read"

    def abort(self) -> None:
        self.state = "closed"


class Scene:
    """The limits under test, with windows of one second that are averaged over one second."""

    def __init__(self, **keys: object) -> None:
        self.keys: dict[str, object] = {"broker.id": 1, "quota.window.num": 2, **TWO_LISTENERS}
        config = BrokerConfig.from_mapping(self.keys | keys)
        self.clock = ManualClock()
        self.quotas = BrokerQuotas(config, self.clock, Metrics(), {})
        self.limits = ConnectionQuotas(config, self.clock, self.quotas)
        self.clients: list[ClientConnection] = []

    def open(self, count: int, listener: str = "OUT", host: str = "10.0.0.1") -> list[Socket]:
        found = []
        for _ in range(count):
            client = ClientConnection(len(self.clients), listener, peer=f"{host}:9")
            self.clients.append(client)
            found.append(Socket())
            self.limits.opened(client, cast("Any", found[-1]))
        return found

    def configure(self, **keys: object) -> None:
        self.limits.configure(BrokerConfig.from_mapping(self.keys | keys))


def states(sockets: list[Socket]) -> list[str]:
    return [socket.state for socket in sockets]


def test_connection_that_waits_for_both_limits_is_read_when_both_allow_it() -> None:
    scene = Scene(**{MOST: 1, RATE: 1})
    first, second = scene.open(2)
    assert states([first, second]) == ["read", "waits"]
    scene.limits.closed(scene.clients[0])
    assert second.state == "waits"
    scene.clock.advance(1_000)
    assert second.state == "read"


def test_connection_above_the_rate_still_waits_for_the_end_of_another_one() -> None:
    scene = Scene(**{MOST: 1, RATE: 1})
    _, second = scene.open(2)
    scene.clock.advance(5_000)
    assert second.state == "waits"
    scene.limits.closed(scene.clients[0])
    assert second.state == "read"


def test_refused_connection_is_counted_nowhere() -> None:
    scene = Scene(**{MOST: 2, RATE: 2, "max.connections.per.ip": 2})
    scene.quotas.load({QuotaEntity(ip="10.0.0.1"): {CONNECTION: "1"}})
    sockets = scene.open(4)
    assert states(sockets) == ["read", "waits", "waits", "waits"]
    scene.clock.advance(1_000)
    assert states(sockets) == ["read", "closed", "closed", "closed"]
    for client in scene.clients[1:]:
        scene.limits.closed(client)
    assert states(scene.open(2, host="10.0.0.2")) == ["read", "waits"]
    assert scene.limits.refused == 3


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({MOST: 1}, {MOST: 3}),
        ({MOST: 1}, {}),
    ],
)
def test_connections_that_wait_are_read_after_the_limit_of_the_listener_was_raised(
    before: dict[str, object], after: dict[str, object]
) -> None:
    scene = Scene(**before)
    sockets = scene.open(3)
    assert states(sockets) == ["read", "waits", "waits"]
    scene.configure(**after)
    assert states(sockets) == ["read"] * 3


def test_connections_above_a_lowered_limit_of_the_listener_live_on() -> None:
    scene = Scene()
    sockets = scene.open(3)
    scene.configure(**{MOST: 1})
    [late] = scene.open(1)
    for client in scene.clients[:2]:
        scene.limits.closed(client)
        assert late.state == "waits"
    assert states(sockets) == ["read"] * 3
    scene.limits.closed(scene.clients[2])
    assert late.state == "read"


def test_limits_of_addresses_change_at_run_time() -> None:
    scene = Scene()
    scene.open(2)
    scene.configure(
        **{"max.connections.per.ip": 2, "max.connections.per.ip.overrides": "10.0.0.2:1"}
    )
    assert states(scene.open(1)) == ["closed"]
    assert states(scene.open(2, host="10.0.0.2")) == ["read", "closed"]
    scene.configure()
    assert states(scene.open(1)) == ["read"]


def test_rate_of_the_broker_applies_to_its_own_listener_alone() -> None:
    scene = Scene(**{RATE: 1})
    assert states(scene.open(2)) == ["read", "waits"]
    assert states(scene.open(2, "IN")) == ["read", "waits"]
    scene.configure(**{RATE: 1, f"listener.name.in.{RATE}": 100})
    assert states(scene.open(2, "IN")) == ["read", "read"]
