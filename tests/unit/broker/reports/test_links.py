"""What a broker does with the registration of its own that other brokers list."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import KafkaError
from minikafka.broker.reports.links import Links
from minikafka.broker.rpc.links import decode_links
from minikafka.simulation.clocks import ManualClock

EPOCH = 70


class World:
    """Broker 1 and what it is told about its registration."""

    def __init__(self) -> None:
        keys = {"broker.id": 1, "log.dirs": "/d", "zookeeper.connect": "zk:2181"}
        fetchers: Any = SimpleNamespace(
            config=BrokerConfig.from_mapping(keys), broken=lambda now: {}
        )
        self.lifecycle: Any = SimpleNamespace(session_state="connected")
        self.metadata: Any = SimpleNamespace(brokers={}, topics={})
        self.clock = ManualClock()
        self.ended = 0
        nothing: Any = None
        self.links = Links(
            1,
            self.metadata,
            fetchers,
            self.lifecycle,
            nothing,
            self.clock,
            nothing,
            lambda: EPOCH,
            self.end,
        )

    def end(self) -> None:
        self.ended += 1


@pytest.fixture
def world() -> World:
    return World()


def test_registration_has_ended_when_a_broker_that_has_listed_it_no_longer_does(
    world: World,
) -> None:
    world.links.compare_registration(2, EPOCH)
    world.lifecycle.session_state = "lease_expired"
    for _ in range(2):
        world.links.compare_registration(2, -1)
    assert world.ended == 1


def test_broker_that_has_never_listed_the_registration_proves_nothing(world: World) -> None:
    """It may know an earlier state of the cluster."""
    world.links.compare_registration(3, EPOCH)
    world.lifecycle.session_state = "lease_expired"
    world.links.compare_registration(2, -1)
    world.links.compare_registration(2, EPOCH - 1)
    assert world.ended == 0


@pytest.mark.parametrize("state", ["connected", "suspended"])
def test_registration_counts_while_the_session_may_go_on(world: World, state: str) -> None:
    world.links.compare_registration(2, EPOCH)
    world.lifecycle.session_state = state
    world.links.compare_registration(2, -1)
    assert world.ended == 0


def test_session_that_is_lost_is_a_broken_link_since_it_was_first_seen(world: World) -> None:
    world.lifecycle.session_state = "suspended"
    assert [link.for_ms for link in world.links.broken()] == [0]
    world.clock.advance(3_000)
    (link,) = world.links.broken()
    assert (link.to, link.address, link.for_ms) == (None, "zk:2181", 3_000)
    world.lifecycle.session_state = "connected"
    assert world.links.broken() == []


def test_report_of_another_broker_is_passed_on_with_its_age(world: World) -> None:
    report = {"age_ms": 10, "links": []}
    asked = {"broker_id": 2, "epoch": 5, "reports": {"3": report}, "of a later version": 1}
    answer = decode_links(world.links.serve(asked))
    assert (answer.broker_id, answer.epoch) == (1, -1)
    world.clock.advance(500)
    assert world.links.report()["3"]["age_ms"] == 510


def test_malformed_reports_are_refused(world: World) -> None:
    for reports in (None, [], {"x": {}}, {"3": 1}, {"3": {"age_ms": -1, "links": []}}):
        with pytest.raises(KafkaError, match="INVALID_REQUEST"):
            world.links.serve({"broker_id": 2, "epoch": 5, "reports": reports})
