"""What the coordinator reports for `minikafka why`: the transactions that have no marker in a partition."""

from __future__ import annotations

from minikafka.base.coordinators import Append
from minikafka.base.model import TopicPartition
from minikafka.transactions.coordinator import TransactionCoordinator
from minikafka.transactions.messages.commands import AllocateProducerId, SendMarkers
from minikafka.transactions.messages.requests import (
    AddPartitionsRequest,
    EndRequest,
    InitProducerIdRequest,
)
from minikafka.transactions.settings import TransactionSettings

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_transaction_is_reported_until_the_partition_has_its_marker() -> None:
    now = [1_000]
    core = TransactionCoordinator(TransactionSettings(), lambda: now[0], 1)
    core.begin_load(0, 7)
    assert core.explain(T0) == {"open": [], "loading": True}
    core.loaded(0, 7, 0)
    (command,) = core.init_producer_id(InitProducerIdRequest("pay", 60_000), "a", 0)
    assert isinstance(command, AllocateProducerId)
    (append,) = core.allocated(command.token, 42, 0, 0)
    assert isinstance(append, Append)
    core.appended(append.token, 0, 0)
    (append,) = core.add_partitions(
        AddPartitionsRequest("pay", 42, 0, [T0, T1], "till at 10.0.0.5:1"), "b", 0
    )
    assert isinstance(append, Append)
    core.appended(append.token, 0, 0)
    now[0] = 3_500
    reported: dict[str, object] = {
        "transactional_id": "pay",
        "producer_id": 42,
        "timeout_ms": 60_000,
        "age_ms": 2_500,
    }
    reported |= {"state": "Ongoing", "client": "till at 10.0.0.5:1", "coordinator_epoch": 7}
    assert core.explain(T0) == {"open": [reported], "loading": False}
    assert core.explain(U0)["open"] == []
    (append,) = core.end(EndRequest("pay", 42, 0, True), "c", 0)
    assert isinstance(append, Append)
    _, markers = core.appended(append.token, 0, 0)
    assert isinstance(markers, SendMarkers)
    core.markers_written(markers.ended, [T0], 0)
    assert core.explain(T0)["open"] == []
    assert core.explain(T1)["open"] == [{**reported, "state": "PrepareCommit"}]
