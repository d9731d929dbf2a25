"""An admin client without a network. A dictionary holds the partitions; the results are those of a real controller.

The attribute `looks` is the number of times that a reassignment is listed before it completes. A reassignment
does not complete while one of its new brokers is in the attribute `paused`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.client import ClusterInfo, NewTopic, Node, Outcome, PartitionInfo, TopicInfo
from minikafka.client.administration.admin import Admin
from minikafka.client.administration.probe import Probed
from minikafka.client.administration.results import (
    ConfigSource,
    DeletedRecords,
    LogDir,
    Resource,
    ResourceType,
    Setting,
    Settings,
    StoredReplica,
)
from minikafka.runtime.clock import SystemClock

DONE = Outcome(ErrorCode.NONE)


class ScriptedAdmin(Admin):
    """An admin client for brokers 1 to n; broker 1 is the controller. `sizes`: bytes by (broker, partition)."""

    def __init__(self, replicas: Mapping[TopicPartition, Sequence[int]], brokers: int = 5) -> None:
        self.replicas = {tp: tuple(r) for tp, r in replicas.items()}
        self._clock = SystemClock()
        self.racks: dict[int, str | None] = dict.fromkeys(range(1, brokers + 1))
        self.controller = 1
        self.moving: dict[TopicPartition, ReplicaAssignment] = {}
        self.looks = 2
        self.looked: dict[TopicPartition, int] = {}
        self.paused: set[int] = set()
        self.sizes: dict[tuple[int, TopicPartition], int] = {}
        self.configs: dict[Resource, dict[str, str]] = {}
        self.elections: list[tuple[list[TopicPartition] | None, bool]] = []
        self.election: dict[TopicPartition, Outcome] = {}
        self.deleting: dict[str, int] = {}
        self.created: list[NewTopic] = []
        self.silent: set[int] = set()
        self.probed: list[int] = []
        self.leaders: dict[TopicPartition, Outcome] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.starts: dict[TopicPartition, int] = {}

    async def __aenter__(self) -> ScriptedAdmin:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    @property
    def admin(self) -> ScriptedAdmin:
        """Return this object, which tests use in place of a client and of its `admin`."""
        return self

    @property
    def inspection(self) -> ScriptedAdmin:
        """Return this object in place of a client's questions to single brokers."""
        return self

    async def ask(self, *_: object, **__: object) -> list[bytes]:
        """Answer as a broker that does not know InspectBroker."""
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "it does not know the request")

    async def describe_cluster(self) -> ClusterInfo:
        nodes = {i: Node(i, "127.0.0.1", 9000 + i, rack) for i, rack in self.racks.items()}
        return ClusterInfo("scripted", self.controller, nodes)

    async def describe(
        self, names: Iterable[str] | None = None, *, retries: bool = True
    ) -> tuple[ClusterInfo, list[TopicInfo]]:
        wanted = sorted({tp.topic for tp in self.replicas}) if names is None else names
        return await self.describe_cluster(), list((await self.describe_topics(wanted)).values())

    async def probe(
        self, cluster: ClusterInfo, topics: Sequence[TopicInfo], ids: Iterable[int]
    ) -> Probed:
        self.probed = sorted(ids)
        silent = Outcome(ErrorCode.NETWORK_EXCEPTION, "Connection refused")
        return Probed({i: silent if i in self.silent else DONE for i in self.probed}, self.leaders)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        found: dict[str, TopicInfo] = {}
        for tp, replicas in sorted(self.replicas.items()):
            if tp.topic in set(names):
                info = found.setdefault(tp.topic, TopicInfo(tp.topic, bytes(16), {}))
                assigned = self.moving[tp].replicas if tp in self.moving else replicas
                info.partitions[tp.partition] = PartitionInfo(
                    tp.partition, replicas[0], 1, assigned, replicas, (), 0
                )
        return found

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, Outcome]:
        return {tp: self._alter(tp, target) for tp, target in targets.items()}

    def _alter(self, tp: TopicPartition, target: Sequence[int] | None) -> Outcome:
        if target is None:
            known = self.moving.pop(tp, None)
            return DONE if known else Outcome(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
        if tp not in self.replicas:
            return Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such partition")
        if not set(target) <= self.racks.keys():
            return Outcome(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no such broker")
        self.moving[tp] = ReplicaAssignment(self.replicas[tp]).reassigned_to(tuple(target))
        return DONE

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        for tp in list(self.moving if partitions is None else partitions):
            self.looked[tp] = self.looked.get(tp, 0) + 1
            moving = self.moving.get(tp)
            if moving and self.looked[tp] > self.looks and not set(moving.adding) & self.paused:
                self.replicas[tp] = self.moving.pop(tp).target
        wanted = self.moving if partitions is None else set(partitions)
        return {tp: moving for tp, moving in self.moving.items() if tp in wanted}

    async def find_misplaced(
        self, targets: Mapping[TopicPartition, Sequence[int]], patience_ms: int = 0
    ) -> dict[TopicPartition, tuple[int, ...]]:
        return {
            tp: self.replicas.get(tp, ())
            for tp, target in targets.items()
            if self.replicas.get(tp) != tuple(target)
        }

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, Outcome]:
        named = None if partitions is None else list(partitions)
        self.elections.append((named, unclean))
        return {tp: o for tp, o in self.election.items() if named is None or tp in named}

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, DeletedRecords]:
        """Set the log start offsets. An offset beyond the log end offset in `ends` is refused."""
        results = {}
        for tp, offset in before.items():
            end = self.ends.get(tp, 0)
            wanted = end if offset < 0 else offset
            if wanted > end:
                results[tp] = DeletedRecords(Outcome(ErrorCode.OFFSET_OUT_OF_RANGE), -1)
            else:
                self.starts[tp] = wanted
                results[tp] = DeletedRecords(DONE, wanted)
        return results

    async def describe_configs(
        self, resources: Iterable[Resource], *, synonyms: bool = False
    ) -> dict[Resource, Settings]:
        return {
            resource: Settings(
                DONE,
                tuple(_own(resource, *item) for item in self.configs.get(resource, {}).items()),
            )
            for resource in resources
        }

    async def alter_configs(
        self, changes: Mapping[Resource, Mapping[str, str | None]]
    ) -> dict[Resource, Outcome]:
        outcomes = {}
        for resource, values in changes.items():
            if resource.name.isdecimal() and int(resource.name) not in self.racks:
                outcomes[resource] = Outcome(ErrorCode.BROKER_NOT_AVAILABLE, "no such broker")
                continue
            outcomes[resource] = DONE
            now: dict[str, Any] = {**self.configs.get(resource, {}), **values}
            self.configs[resource] = {k: v for k, v in now.items() if v is not None}
        return outcomes

    async def describe_log_dirs(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        brokers: Iterable[int] | None = None,
    ) -> dict[int, list[LogDir]]:
        return {
            broker: [
                LogDir(
                    "/data",
                    DONE,
                    [
                        StoredReplica(tp, size)
                        for (at, tp), size in self.sizes.items()
                        if at == broker and (partitions is None or tp in partitions)
                    ],
                    100,
                    50,
                )
            ]
            for broker in (self.racks if brokers is None else brokers)
            if broker not in self.paused
        }

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, Outcome]:
        outcomes = {}
        for topic in topics:
            left = self.deleting.get(topic.name, 0)
            self.deleting[topic.name] = max(left - 1, 0)
            outcomes[topic.name] = Outcome(ErrorCode.TOPIC_ALREADY_EXISTS) if left else DONE
            if not validate_only:
                self.created.append(topic)
        return outcomes

    async def delete_topics(self, names: Iterable[str]) -> dict[str, Outcome]:
        known = {tp.topic for tp in self.replicas}
        unknown = Outcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no such topic")
        return {name: DONE if name in known else unknown for name in names}

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[int]]] | None = None,
    ) -> dict[str, Outcome]:
        for name, count in counts.items():
            new = iter((assignments or {}).get(name, ()))
            first = sum(tp.topic == name for tp in self.replicas)
            for number in range(first, count):
                self.replicas[TopicPartition(name, number)] = tuple(next(new, (1,)))
        return dict.fromkeys(counts, DONE)


def _own(resource: Resource, name: str, value: str) -> Setting:
    topic = resource.type is ResourceType.TOPIC
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG if topic else ConfigSource.DYNAMIC_BROKER_CONFIG
    return Setting(name, value, source, False, False, ())
