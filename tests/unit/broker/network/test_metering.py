"""What a connection with quotas tells its client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from minikafka.base.config import BrokerConfig
from minikafka.base.metrics import Histogram, Metrics
from minikafka.broker.clients.quotas import BrokerQuotas
from minikafka.broker.network.metering import Metering
from minikafka.kafka.wire.codec import encode_request, request
from minikafka.kafka.wire.fetch import encode_response
from minikafka.kafka.wire.versions import FETCH
from minikafka.security.quotas import CONSUMER, QuotaEntity
from minikafka.simulation.clocks import ManualClock

VERSION = 11


def test_fetch_without_records_because_of_a_quota_always_has_a_time_to_wait() -> None:
    """Java's consumer takes a response without partitions and without this time for a fault of the broker."""
    clock, waits = ManualClock(), list[int]()
    config = BrokerConfig.from_mapping({"broker.id": 1, "quota.window.num": 2})
    quotas = BrokerQuotas(config, clock, Metrics(), {FETCH: Histogram()})
    quotas.load({QuotaEntity(user="alice"): {CONSUMER: "1000"}})

    def answer(*_: object) -> bool:
        assert metering.fetch_bytes_max() == 0
        clock.advance(5_000)  # the rate of the client falls below its quota
        metering.fetch_answered(response, VERSION)
        return False

    metering = Metering(
        cast("Any", SimpleNamespace(principal="User:alice", user="alice")),
        quotas,
        cast("Any", SimpleNamespace(time_ns=lambda: 1)),
        cast("Any", None),
        cast("Any", SimpleNamespace(on_request=answer, session=None)),
        waits.append,
    )
    limit = quotas.limits_of("alice", "c").consumer
    quotas.fetched(limit, 3_000)
    response = encode_response(1, VERSION, 0, 0, ())
    frame = bytearray(encode_request(FETCH, VERSION, 1, "c", request(FETCH, VERSION)))
    body = 14 + len("c")
    metering.routes[FETCH](frame, memoryview(frame), VERSION, 1, 0, body, len(frame))
    assert len(waits) == 1
    assert waits[0] > 0
    assert int.from_bytes(bytes(response[0][8:12])) == waits[0]
