"""Registrations of brokers of other releases."""

from __future__ import annotations

import pytest
from support.brokers.endpoints import endpoints

from minikafka.base.model import Broker
from minikafka.base.protocol_versions import VERSIONS, Versions
from minikafka.simulation.zookeeper import ZooKeeperInMemory
from minikafka.simulation.zookeeper_client import InMemoryClient
from minikafka.zookeeper.nodes import layout, registrations
from minikafka.zookeeper.nodes.faults import Faults


@pytest.mark.parametrize(
    ("versions", "is_usable"), [(("0.1",), True), (("0.2", "0.3"), True), (("0.3", "0.4"), False)]
)
async def test_broker_without_a_common_protocol_version_does_not_count_as_registered(
    versions: Versions, is_usable: bool
) -> None:
    ensemble, faults = ZooKeeperInMemory(), Faults()
    ensemble.put(layout.BROKER_IDS)
    brokers = [
        Broker(id_, endpoints("h", 9092, "h", 19092), versions=named)
        for id_, named in ((1, VERSIONS), (2, versions))
    ]
    for one in brokers:
        ensemble.put(layout.broker_path(one.id), layout.encode_broker(one))
    session = InMemoryClient(ensemble)
    await session.attach()
    found = await registrations.read(session, [1, 2], faults)
    assert list(found) == ([1, 2] if is_usable else [1])
    assert ("upgrade this release first" in faults.found.get("/brokers/ids/2", "")) is not is_usable
