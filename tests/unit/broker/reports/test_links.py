"""What a broker does with the registration of its own that other brokers list."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support.brokers.endpoints import endpoints

from minikafka.base.config import BrokerConfig
from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import KafkaError
from minikafka.base.model import Broker
from minikafka.base.protocol_versions import VERSIONS, Versions
from minikafka.broker.reports.links import Links
from minikafka.broker.rpc.links import decode_links, encode_links
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
        self.refuses = False
        ledger: Any = SimpleNamespace(record=lambda *_: None)
        self.called: list[tuple[int, str]] = []
        plane: Any = SimpleNamespace(versions=VERSIONS, call=self.call)
        self.links = Links(
            1,
            self.metadata,
            fetchers,
            self.lifecycle,
            plane,
            self.clock,
            ledger,
            lambda: EPOCH,
            self.end,
        )

    async def call(
        self, endpoint: Endpoint, method: str, body: Any, *, target_id: int, version: str, **_: Any
    ) -> dict[str, Any]:
        self.called.append((target_id, version))
        if self.refuses:
            raise ConnectionRefusedError
        return encode_links(target_id, -1, {})

    def know(self, **versions: tuple[str, ...]) -> None:
        """Show brokers from 1 on, which have these versions of the protocol between brokers."""
        self.metadata.brokers = {
            id_: Broker(id_, endpoints("h", 9092, "h", 19092), versions=named)
            for id_, named in enumerate(versions.values(), 1)
        }

    async def one_round(self) -> None:
        """Let the broker call all others once."""
        task = asyncio.create_task(self.links.run())
        for _ in range(10):
            await asyncio.sleep(0)
        task.cancel()

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


@pytest.mark.parametrize(
    ("own", "other", "called"),
    [
        (VERSIONS, VERSIONS, [(2, "0.2")]),
        (VERSIONS, ("0.2", "0.3"), [(2, "0.2")]),
        (VERSIONS, ("0.1",), []),
        (("0.1",), VERSIONS, []),
    ],
)
async def test_brokers_exchange_reports_only_if_all_registered_ones_know_the_call(
    world: World, own: Versions, other: Versions, called: list[tuple[int, str]]
) -> None:
    world.know(own=own, other=other)
    await world.one_round()
    assert world.called == called


async def test_call_that_has_failed_proves_nothing_after_the_broker_has_registered_again(
    world: World,
) -> None:
    world.know(own=VERSIONS, other=VERSIONS)
    world.refuses = True
    await world.one_round()
    assert [link.to for link in world.links.broken()] == [2]
    world.metadata.brokers[2] = replace(world.metadata.brokers[2], epoch=EPOCH)
    assert world.links.broken() == []
    await world.one_round()
    assert [link.to for link in world.links.broken()] == [2]
    del world.metadata.brokers[2]
    assert [link.to for link in world.links.broken()] == [2]
