"""The advertised addresses that a broker cannot reach."""

from __future__ import annotations

import pytest

from minikafka.base.endpoints import parse_endpoint
from minikafka.base.model import Broker, UpdateMetadataRequest
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.reports.reachability import Reachability
from minikafka.runtime.transport import SocketTransport
from minikafka.simulation.clocks import ManualClock


async def test_address_that_refuses_is_reported_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    transport = SocketTransport()
    listener = await transport.listen(lambda: None, "127.0.0.1", 0)
    good = parse_endpoint(f"PLAINTEXT://127.0.0.1:{listener.port}")
    bad = parse_endpoint("OUTSIDE://127.0.0.1:1")
    metadata = MetadataCache(ManualClock())
    control = parse_endpoint("CONTROL://127.0.0.1:1")
    brokers = (Broker(1, (bad,), 5), Broker(2, (good, bad, control), 6))
    metadata.update(UpdateMetadataRequest(1, 1, 1, (), brokers, ()))
    found = Reachability(1, metadata, transport, "CONTROL")
    assert found._has_new_broker()
    for _ in range(2):
        await found._try_all()
        assert found.report() == [
            {"broker": 2, "address": "OUTSIDE://127.0.0.1:1", "reason": "connection refused"}
        ]
    assert not found._has_new_broker()
    assert caplog.messages == [
        "OUTSIDE://127.0.0.1:1 of broker 2 cannot be reached from this broker: connection refused; correct its "
        "advertised.listeners, or the network"
    ]
    metadata.update(UpdateMetadataRequest(1, 1, 1, (), brokers[:1], ()))
    await found._try_all()
    assert found.report() == []
    await listener.close()
