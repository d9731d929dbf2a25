"""A `StubCluster` that lists and describes transactions, and writes the markers that `transactions abort` sends."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from support.clients.stub_cluster import HOST, StubCluster

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.client.administration.transaction_admin import ProducerState
from minikafka.kafka.wire import versions

OPEN: Final = ProducerState(7, 2, 4, 5, 1_000, 30)
"""A producer whose transaction began at offset 30."""


class StubTransactions(StubCluster):
    """A StubCluster in which the broker `coordinator` coordinates every transactional id.

    `producers`: partition → its producers. `transactions`: transactional id → the fields of its description.
    `aborted`: the markers that were written, as (partition, producer id, epoch, coordinator epoch).
    """

    coordinator = 2

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.producers: defaultdict[TopicPartition, list[ProducerState]] = defaultdict(list)
        self.transactions: dict[str, dict[str, Any]] = {}
        self.aborted: list[tuple[TopicPartition, int, int, int]] = []
        self.answers: dict[int, Callable[[int, Any, int], Any]] = {
            versions.FIND_COORDINATOR: self.find,
            versions.LIST_TRANSACTIONS: self.list_transactions,
            versions.DESCRIBE_TRANSACTIONS: self.describe,
            versions.DESCRIBE_PRODUCERS: self.describe_producers,
            versions.WRITE_TXN_MARKERS: self.write_markers,
            versions.INIT_PRODUCER_ID: self.init_producer_id,
        }

    def transact(self, name: str, producer: ProducerState, *partitions: TopicPartition) -> None:
        """Let a transactional id have an open transaction with these partitions."""
        self.transactions[name] = {
            "transactional_id": name,
            "transaction_state": "Ongoing",
            "transaction_timeout_ms": 60_000,
            "transaction_start_time_ms": 500,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.producer_epoch,
            "topics": [{"topic": tp.topic, "partitions": [tp.partition]} for tp in partitions],
        }

    def answer(self, broker: int, api: int, request: Any) -> Any:
        if api not in self.answers:
            return super().answer(broker, api, request)
        return self.answers[api](broker, request, self.failure(api))

    def find(self, broker: int, request: Any, error: int) -> Any:
        assert request.key_type == 1
        place = {"node_id": self.coordinator, "host": HOST, "port": self.ports[self.coordinator]}
        found = [{"key": key, "error_code": error, **place} for key in request.coordinator_keys]
        return {"coordinators": found}

    def list_transactions(self, broker: int, request: Any, error: int) -> Any:
        names = ("transactional_id", "producer_id", "transaction_state")
        states = [
            {name: one[name] for name in names}
            for one in self.transactions.values()
            if broker == self.coordinator
            if one["producer_id"] in (request.producer_id_filters or (one["producer_id"],))
            if one["transaction_state"] in (request.state_filters or (one["transaction_state"],))
        ]
        return {"error_code": error, "transaction_states": states}

    def describe(self, broker: int, request: Any, error: int) -> Any:
        if broker != self.coordinator:
            error = ErrorCode.NOT_COORDINATOR
        missing = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        states = [
            {**self.transactions[name], "error_code": error}
            if name in self.transactions
            else {"transactional_id": name, "error_code": error or missing}
            for name in request.transactional_ids
        ]
        return {"transaction_states": states}

    def describe_producers(self, broker: int, request: Any, error: int) -> Any:
        (topic,) = request.topics
        (number,) = topic.partition_indexes
        rows = [
            {
                "producer_id": one.producer_id,
                "producer_epoch": one.producer_epoch,
                "last_sequence": one.last_sequence,
                "last_timestamp": one.last_timestamp,
                "coordinator_epoch": -1 if one.coordinator_epoch is None else one.coordinator_epoch,
                "current_txn_start_offset": -1 if one.start_offset is None else one.start_offset,
            }
            for one in self.producers[TopicPartition(topic.name, number)]
        ]
        row = {"partition_index": number, "error_code": error, "active_producers": rows}
        return {"topics": [{"name": topic.name, "partitions": [row]}]}

    def init_producer_id(self, broker: int, request: Any, error: int) -> Any:
        """Fence the producer of an id. While its transaction is open, abort it, and let the client try again."""
        found = self.transactions[request.transactional_id]
        assert request.transaction_timeout_ms == found["transaction_timeout_ms"]
        if broker != self.coordinator:
            error = ErrorCode.NOT_COORDINATOR
        if not error and found["transaction_state"] == "Ongoing":
            found["transaction_state"] = "CompleteAbort"
            error = ErrorCode.CONCURRENT_TRANSACTIONS
        return {"error_code": error, "producer_id": 7, "producer_epoch": 3}

    def write_markers(self, broker: int, request: Any, error: int) -> Any:
        (marker,) = request.markers
        (topic,) = marker.topics
        (number,) = topic.partition_indexes
        tp = TopicPartition(topic.name, number)
        assert not marker.transaction_result
        if broker != self.topics[tp.topic][number].leader:
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not error:
            numbers = (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch)
            self.aborted.append((tp, *numbers))
        row = {"partition_index": number, "error_code": error}
        topics = [{"name": topic.name, "partitions": [row]}]
        return {"markers": [{"producer_id": marker.producer_id, "topics": topics}]}
