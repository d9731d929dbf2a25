"""The smallest coordinator: it keeps the last value of every key in an internal topic (docs/extending.md)."""

from __future__ import annotations

from typing import Any, NamedTuple

from minikafka.base.coordinators import (
    Append,
    LeadershipBegun,
    LeadershipEnded,
    LoadFinished,
    LoadPartition,
    RecordsRead,
    partition_of,
)
from minikafka.base.errors import ErrorCode
from minikafka.broker.broker import BrokerServer
from minikafka.broker.coordinators.host import CoordinatorHost
from minikafka.broker.coordinators.internal_topic import InternalTopic, TopicSettings
from minikafka.deciders.decider import Outcome, Procedures


class Put(NamedTuple):
    key: str
    value: bytes
    caller: Any


class Get(NamedTuple):
    key: str
    caller: Any


class Registry:
    def __init__(self, partition_count: int) -> None:
        self.partition_count = partition_count
        self.loads: dict[int, dict[str, bytes]] = {}  # the values read so far, by partition
        self.owned: dict[int, dict[str, bytes]] = {}  # the values of the loaded partitions
        self.procedures = Procedures()

    def handle(self, event: Any, now: int) -> list:
        match event:
            case Put():
                self.procedures.start(self.put(event))
            case Get(key, caller):
                values = self.owned.get(partition_of(key, self.partition_count))
                found = self.refusal(key) if values is None else values.get(key)
                self.procedures.answer(caller, found)
            case Outcome():
                self.procedures.resume(event)
            case LeadershipBegun(partition, epoch):
                if partition not in self.owned:
                    self.loads[partition] = {}
                    self.procedures.emit(LoadPartition(partition, epoch))
            case RecordsRead(partition, _, records):
                for key, value, _ in records:
                    self.loads[partition][key.decode()] = value
            case LoadFinished(partition, _, count):
                self.partition_count = count
                self.owned[partition] = self.loads.pop(partition)
            case LeadershipEnded(partition):
                self.loads.pop(partition, None)
                self.owned.pop(partition, None)
        return self.procedures.take()

    def put(self, request: Put):
        number = partition_of(request.key, self.partition_count)
        error: int = self.refusal(request.key)
        if not error:
            record = (request.key.encode(), request.value)
            error = yield Append(number, [record], self.procedures.new_token())
        if not error and number in self.owned:  # the leadership may have ended meanwhile
            self.owned[number][request.key] = request.value
        self.procedures.answer(request.caller, ErrorCode(error))

    def refusal(self, key: str) -> ErrorCode:
        number = partition_of(key, self.partition_count)
        if number in self.loads:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.NONE if number in self.owned else ErrorCode.NOT_COORDINATOR

    def next_deadline(self) -> int | None:
        return None


def host_registry(broker: BrokerServer) -> tuple[CoordinatorHost, Registry]:
    settings = TopicSettings(
        "__registry", 3, 3, "registry.replication.factor", {"cleanup.policy": "compact"}
    )
    topic = InternalTopic(settings, broker.metadata, broker.admin.auto_create)
    registry = Registry(topic.partition_count)
    host = CoordinatorHost(registry, topic, broker.replicas, broker.clock, broker.tasks, own={})
    return host, registry
