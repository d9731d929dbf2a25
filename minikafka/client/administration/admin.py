"""The administrator's side of the client: topics, partitions, reassignments, elections, settings, log directories.

Invariant: each item of a request (a topic, a partition, a resource) has its own `Outcome`; if one item is
refused, the other items are still processed. KafkaError is raised only when no broker answered in time, or
when the request as a whole was refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from minikafka.base.arguments import several
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import BrokerId, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Clock
from minikafka.client.administration.controller_requests import (
    CONTROLLER,
    ControllerRequests,
    is_not_controller,
    no_controller,
)
from minikafka.client.administration.probe import Probed, probe
from minikafka.client.administration.results import (
    DeletedRecords,
    LogDir,
    Outcome,
    Resource,
    ResourceType,
    Settings,
    read_log_dir,
    read_outcome,
    read_settings,
)
from minikafka.client.log_offsets import EARLIEST, LATEST, LogOffsets
from minikafka.client.metadata import ClusterInfo, Metadata, TopicInfo, error_code, read_metadata
from minikafka.client.network import Address, Network, request
from minikafka.client.retries import GRACE_MS, Retries
from minikafka.kafka.wire import versions

logger = logging.getLogger(__name__)

API_TIMEOUT_MS: Final = 60_000
"""Kafka's `default.api.timeout.ms`."""
BROKER_TIMEOUT_MS: Final = 10_000
"""Time for one broker to return or change its own settings."""
LOG_DIRS_TIMEOUT_MS: Final = 1_000
"""Time for one broker to return its log directories; a broker that is slower is left out."""
POLL_MS: Final = 200
"""Interval for polling a reassignment: the Kafka protocol has no notification that a reassignment has ended."""
METADATA_LAG_MS: Final = 5_000
"""Maximum time that metadata may lag behind the controller after the end of a reassignment."""


class NewTopic(NamedTuple):
    """A topic to create; -1 means the broker's default. `assignment`: replicas by partition number."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    assignment: Mapping[int, Sequence[int]] = {}


class Admin:
    """The administrative requests to a cluster, available as `client.admin`."""

    def __init__(
        self,
        network: Network,
        metadata: Metadata,
        clock: Clock,
        request_timeout_ms: int,
        api_timeout_ms: int = API_TIMEOUT_MS,
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._retries = Retries(clock, metadata, api_timeout_ms)
        self._log_offsets = LogOffsets(network, metadata, self._retries, request_timeout_ms)
        self._controller = ControllerRequests(network, metadata, self._retries, request_timeout_ms)

    # Cluster and topics

    async def describe_cluster(self) -> ClusterInfo:
        """Return the brokers and the controller, from the metadata of one broker."""
        cluster, _ = await self._retries(lambda: self._metadata.describe(()))
        return cluster

    async def describe(
        self, names: Iterable[str] | None = None, *, retries: bool = True
    ) -> tuple[ClusterInfo, list[TopicInfo]]:
        """Return the cluster and these topics (None: all topics), sorted by name, from the metadata of one broker.

        This works without a controller, because any broker may answer. Unknown topics are left out. Raises KafkaError,
        also if the client lacks the right to describe one of `names`, and without `retries` OSError.
        """
        wanted = None if names is None else several(str, names)
        attempt = partial(self._metadata.describe, wanted)
        cluster, topics = await (self._retries(attempt) if retries else attempt())
        for info, error in topics:
            if error is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                raise KafkaError(error, f"{info.name}: no ACL lets the client describe this topic")
        known = (info for info, error in topics if error is ErrorCode.NONE)
        return cluster, sorted(known, key=lambda info: info.name)

    async def probe(
        self, cluster: ClusterInfo, topics: Sequence[TopicInfo], ids: Iterable[int]
    ) -> Probed:
        """Ask each broker in `ids` once for the end offsets of the partitions it leads; return the outcomes."""
        return await probe(self._network, cluster, topics, ids)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Return these topics by name, from the metadata of the controller. Unknown topics are left out."""
        wanted = [{"name": name} for name in dict.fromkeys(several(str, names))]
        body = request(versions.METADATA, topics=wanted, allow_auto_topic_creation=False)

        async def attempt() -> dict[str, TopicInfo]:
            address = await self._metadata.controller()
            _, topics = read_metadata(
                await self._network.call(address, versions.METADATA, self._request_timeout_ms, body)
            )
            return {info.name: info for info, error in topics if error is ErrorCode.NONE}

        return await self._retries(attempt, CONTROLLER)

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, Outcome]:
        """Create topics and wait for their leaders; return the outcomes by name.

        `validate_only`: only check whether the topics could be created.
        """

        def body(pending: Sequence[NewTopic]) -> Any:
            return request(
                versions.CREATE_TOPICS,
                topics=[_creatable(topic) for topic in pending],
                timeout_ms=self._request_timeout_ms,
                validate_only=validate_only,
            )

        by_name = {topic.name: topic for topic in several(NewTopic, topics)}
        return await self._controller.send_items(
            versions.CREATE_TOPICS,
            by_name,
            lambda names: body([by_name[name] for name in names]),
            lambda response: _by_name(response.topics),
        )

    async def delete_topics(self, names: Iterable[str]) -> dict[str, Outcome]:
        """Mark topics for deletion; return the outcomes by name. The controller then deletes the topics."""
        return await self._controller.send_items(
            versions.DELETE_TOPICS,
            several(str, names),
            lambda pending: request(
                versions.DELETE_TOPICS, topic_names=pending, timeout_ms=self._request_timeout_ms
            ),
            lambda response: _by_name(response.responses),
        )

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[BrokerId]]] | None = None,
    ) -> dict[str, Outcome]:
        """Increase each topic to this number of partitions; return the outcomes by name.

        `assignments`: by topic, the replicas of each new partition, in order.
        """
        given = assignments or {}

        def body(pending: Sequence[str]) -> Any:
            topics = []
            for name in pending:
                new = [{"broker_ids": replicas} for replicas in given.get(name, ())]
                topics.append({"name": name, "count": counts[name], "assignments": new or None})
            timeout = self._request_timeout_ms
            return request(
                versions.CREATE_PARTITIONS, topics=topics, timeout_ms=timeout, validate_only=False
            )

        return await self._controller.send_items(
            versions.CREATE_PARTITIONS, counts, body, lambda response: _by_name(response.results)
        )

    # Reassignments and elections

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]
    ) -> dict[TopicPartition, Outcome]:
        """Start to move partitions to these replicas; None cancels a partition's move (KIP-455)."""

        def body(pending: Sequence[TopicPartition]) -> Any:
            return request(
                versions.ALTER_PARTITION_REASSIGNMENTS,
                topics=[
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": number,
                                "replicas": targets[TopicPartition(topic, number)],
                            }
                            for number in numbers
                        ],
                    }
                    for topic, numbers in _by_topic(pending).items()
                ],
                timeout_ms=self._request_timeout_ms,
            )

        return await self._controller.send_items(
            versions.ALTER_PARTITION_REASSIGNMENTS, targets, body, _reassignment_outcomes
        )

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the reassignments in progress of these partitions (None: of all partitions)."""
        topics = None
        if partitions is not None:
            topics = [
                {"name": topic, "partition_indexes": numbers}
                for topic, numbers in _by_topic(several(TopicPartition, partitions)).items()
            ]
        body = request(
            versions.LIST_PARTITION_REASSIGNMENTS,
            topics=topics,
            timeout_ms=self._request_timeout_ms,
        )

        async def attempt() -> dict[TopicPartition, ReplicaAssignment]:
            api = versions.LIST_PARTITION_REASSIGNMENTS
            response = await self._controller.send_checked(api, body)
            return {
                TopicPartition(topic.name, p.partition_index): ReplicaAssignment(
                    tuple(map(int, p.replicas)),
                    tuple(map(int, p.adding_replicas)),
                    tuple(map(int, p.removing_replicas)),
                )
                for topic in response.topics
                for p in topic.partitions
            }

        return await self._retries(attempt, CONTROLLER)

    async def follow_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]
    ) -> AsyncIterator[dict[TopicPartition, ReplicaAssignment]]:
        """Yield the reassignments in progress, every POLL_MS, until no partition is being moved to its target.

        A target of None stands for any target.
        """
        pending: Iterable[TopicPartition] = targets
        while True:
            found = await self.list_reassignments(pending)
            pending = active = {
                tp: moving
                for tp, moving in found.items()
                if (target := targets[tp]) is None or moving.target == tuple(target)
            }
            if not active:
                return
            yield active
            await self._clock.sleep(POLL_MS)

    async def reassign_partition(
        self, topic: str, partition: int, replicas: Sequence[BrokerId]
    ) -> bool:
        """Reassign one partition, wait for the end, and return True if the partition has these replicas (K2).

        There is no time limit. If the caller stops waiting (asyncio.timeout), the reassignment continues.
        The result is also False if the controller refuses the reassignment (this is logged), or if the
        reassignment was cancelled or replaced by another reassignment.
        """
        tp = TopicPartition(topic, partition)
        outcome = (await self.alter_reassignments({tp: replicas}))[tp]
        if not outcome.ok:
            logger.error("%s cannot be reassigned to %s: %s", tp, list(replicas), outcome)
            return False
        async for _ in self.follow_reassignments({tp: None}):
            pass
        return not await self.find_misplaced({tp: replicas}, METADATA_LAG_MS)

    async def find_misplaced(
        self,
        targets: Mapping[TopicPartition, Sequence[BrokerId]],
        patience_ms: int = METADATA_LAG_MS,
    ) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """Return the partitions whose replicas differ from their target, with their current replicas.

        The replicas are () if the partition does not exist. `patience_ms`: how long to wait while metadata
        may still show the former replicas.
        """
        began = self._clock.now()
        while True:
            known = await self.describe_topics({topic for topic, _ in targets})
            misplaced = {}
            for tp, wanted in targets.items():
                info = known[tp.topic].partitions.get(tp.partition) if tp.topic in known else None
                if info is None or info.replicas != tuple(wanted):
                    misplaced[tp] = info.replicas if info else ()
            if not misplaced or self._clock.now() - began >= patience_ms:
                return misplaced
            await self._clock.sleep(POLL_MS)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, Outcome]:
        """Elect the preferred leaders. `unclean`: elect any live replica of partitions without leader (KIP-460).

        `partitions` None means all partitions; the result may then omit partitions that need no election.
        """
        if partitions is None:
            body = self._election(None, unclean)
            return await self._retries(partial(self._elect_all, body), CONTROLLER)
        return await self._controller.send_items(
            versions.ELECT_LEADERS,
            several(TopicPartition, partitions),
            lambda pending: self._election(pending, unclean),
            _election_outcomes,
        )

    async def _elect_all(self, body: Any) -> dict[TopicPartition, Outcome]:
        response = await self._controller.send_checked(versions.ELECT_LEADERS, body)
        found = _election_outcomes(response)
        if any(map(is_not_controller, found.values())):
            raise no_controller()
        return found

    def _election(self, partitions: Iterable[TopicPartition] | None, unclean: bool) -> Any:
        topics = None
        if partitions is not None:
            topics = [
                {"topic": topic, "partitions": numbers}
                for topic, numbers in _by_topic(partitions).items()
            ]
        return request(
            versions.ELECT_LEADERS,
            election_type=int(unclean),
            topic_partitions=topics,
            timeout_ms=self._request_timeout_ms,
        )

    # Records

    async def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, DeletedRecords]:
        """Delete the records of each partition below an offset; -1 means the high watermark (KIP-107)."""
        results = await asyncio.gather(*(self._delete(tp, before[tp]) for tp in before))
        return dict(zip(before, results, strict=True))

    async def _delete(self, tp: TopicPartition, offset: int) -> DeletedRecords:
        row = {"partition_index": tp.partition, "offset": offset}
        body = request(
            versions.DELETE_RECORDS,
            topics=[{"name": tp.topic, "partitions": [row]}],
            timeout_ms=self._request_timeout_ms,
        )

        async def attempt() -> DeletedRecords:
            leader = await self._metadata.leader(*tp)
            timeout_ms = self._request_timeout_ms + GRACE_MS
            api = versions.DELETE_RECORDS
            response = await self._network.call(leader.address, api, timeout_ms, body)
            answer = response.topics[0].partitions[0]
            code = error_code(answer.error_code)
            if code is not ErrorCode.NONE:
                raise AnsweredError(code, str(tp))
            return DeletedRecords(Outcome(code), int(answer.low_watermark))

        try:
            return await self._retries(attempt, f"the leader of {tp}", tp)
        except KafkaError as error:
            reason = error.reason
            if error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
                reason = await self._valid_offsets(tp, offset)
            return DeletedRecords(Outcome(error.code, reason), -1)

    async def _valid_offsets(self, tp: TopicPartition, offset: int) -> str:
        """Return a sentence with the offsets that DeleteRecords accepts for this partition."""
        text = f"{tp} has no offset {offset}"
        try:
            first = (await self._log_offsets({tp: EARLIEST}))[tp]
            end = (await self._log_offsets({tp: LATEST}))[tp]
        except KafkaError:
            return text
        return f"{text}: valid offsets are {first} to {end}, or -1 for all committed records"

    # Settings

    async def describe_configs(
        self, resources: Iterable[Resource], *, synonyms: bool = False
    ) -> dict[Resource, Settings]:
        """Return the settings of each resource. The settings of a single broker are requested from that broker."""

        def body(some: Sequence[Resource]) -> Any:
            return request(
                versions.DESCRIBE_CONFIGS,
                resources=[
                    {"resource_type": kind, "resource_name": name, "configuration_keys": None}
                    for kind, name in some
                ],
                include_synonyms=synonyms,
            )

        found = await self._by_resource(
            versions.DESCRIBE_CONFIGS, several(Resource, resources), body
        )
        return {
            resource: Settings(answer) if isinstance(answer, Outcome) else read_settings(answer)
            for resource, answer in found.items()
        }

    async def alter_configs(
        self, changes: Mapping[Resource, Mapping[str, str | None]]
    ) -> dict[Resource, Outcome]:
        """Change settings of resources. The value None removes a setting, so that its default applies (KIP-339)."""

        def body(some: Sequence[Resource]) -> Any:
            return request(
                versions.INCREMENTAL_ALTER_CONFIGS,
                resources=[
                    {
                        "resource_type": resource.type,
                        "resource_name": resource.name,
                        "configs": [
                            {"name": name, "config_operation": int(value is None), "value": value}
                            for name, value in changes[resource].items()
                        ],
                    }
                    for resource in some
                ],
                validate_only=False,
            )

        found = await self._by_resource(versions.INCREMENTAL_ALTER_CONFIGS, list(changes), body)
        return {
            resource: answer if isinstance(answer, Outcome) else read_outcome(answer)
            for resource, answer in found.items()
        }

    async def _by_resource(
        self, api: int, resources: Sequence[Resource], body: Callable[[Sequence[Resource]], Any]
    ) -> dict[Resource, Any]:
        """Send the request about each resource, and return the part of the response for each resource.

        A request about a single broker is sent to that broker, all others to the controller. If a broker
        did not answer, the value for its resource is an `Outcome` with the error.
        """
        groups: defaultdict[BrokerId | None, list[Resource]] = defaultdict(list)
        for resource in dict.fromkeys(resources):
            own = resource.type is ResourceType.BROKER and resource.name.isdecimal()
            groups[int(resource.name) if own else None].append(resource)
        answers = await asyncio.gather(
            *(self._resource_answers(broker, api, body(group)) for broker, group in groups.items())
        )
        found: dict[Resource, Any] = {}
        for group, answer in zip(groups.values(), answers, strict=True):
            if isinstance(answer, Outcome):
                found |= dict.fromkeys(group, answer)
                continue
            for item in answer:
                found[Resource(ResourceType(item.resource_type), item.resource_name)] = item
        return found

    async def _resource_answers(self, broker: BrokerId | None, api: int, body: Any) -> Any:
        """Send a request to one broker (None: the controller), and return the items in the response.

        Return an Outcome if that broker is not alive or does not answer.
        """
        if broker is None:
            return await self._retries(partial(self._controller_answers, api, body), CONTROLLER)
        node = (await self.describe_cluster()).brokers.get(broker)
        if node is None:
            return Outcome(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no live broker {broker}")
        try:
            response = await self._network.call(
                Address(node.host, node.port), api, BROKER_TIMEOUT_MS, body
            )
        except OSError as error:
            return Outcome(ErrorCode.NETWORK_EXCEPTION, f"broker {broker} does not answer: {error}")
        return response.results if api == versions.DESCRIBE_CONFIGS else response.responses

    async def _controller_answers(self, api: int, body: Any) -> Any:
        response = await self._controller.send_once(api, body)
        answers = response.results if api == versions.DESCRIBE_CONFIGS else response.responses
        if any(answer.error_code == ErrorCode.NOT_CONTROLLER for answer in answers):
            raise no_controller()
        return answers

    # Log directories

    async def describe_log_dirs(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        brokers: Iterable[BrokerId] | None = None,
    ) -> dict[BrokerId, list[LogDir]]:
        """Return the log directories of `brokers` (None: all), with the sizes of `partitions` (None: all).

        A broker that is down, or does not answer within LOG_DIRS_TIMEOUT_MS, is left out.
        """
        cluster = await self.describe_cluster()
        wanted = cluster.brokers.keys() if brokers is None else set(several(int, brokers))
        nodes = [node for node in cluster.brokers.values() if node.id in wanted]
        topics = None
        if partitions is not None:
            topics = [
                {"topic": topic, "partitions": numbers}
                for topic, numbers in _by_topic(several(TopicPartition, partitions)).items()
            ]
        body = request(versions.DESCRIBE_LOG_DIRS, topics=topics)
        answers = await asyncio.gather(
            *(self._log_dirs(Address(node.host, node.port), body) for node in nodes)
        )
        return {
            node.id: answer
            for node, answer in zip(nodes, answers, strict=True)
            if answer is not None
        }

    async def _log_dirs(self, address: Address, body: Any) -> list[LogDir] | None:
        api = versions.DESCRIBE_LOG_DIRS
        try:
            response = await self._network.call(address, api, LOG_DIRS_TIMEOUT_MS, body)
        except OSError:
            return None
        return [read_log_dir(found) for found in response.results]

    async def alter_log_dirs(
        self, broker: BrokerId, directories: Mapping[TopicPartition, str]
    ) -> dict[TopicPartition, Outcome]:
        """Move replicas of a broker to log directories; success means that the moves have begun. Raises OSError."""
        node = (await self.describe_cluster()).brokers[broker]
        by_path: defaultdict[str, list[TopicPartition]] = defaultdict(list)
        for tp, path in directories.items():
            by_path[path].append(tp)
        dirs = [
            {
                "path": path,
                "topics": [{"name": n, "partitions": p} for n, p in _by_topic(moved).items()],
            }
            for path, moved in by_path.items()
        ]
        api, address = versions.ALTER_REPLICA_LOG_DIRS, Address(node.host, node.port)
        body = request(api, dirs=dirs)
        answer = await self._network.call(address, api, LOG_DIRS_TIMEOUT_MS, body)
        return {
            TopicPartition(topic.topic_name, row.partition_index): read_outcome(row)
            for topic in answer.results
            for row in topic.partitions
        }


def _creatable(topic: NewTopic) -> dict[str, Any]:
    return {
        "name": topic.name,
        "num_partitions": -1 if topic.assignment else topic.partitions,
        "replication_factor": -1 if topic.assignment else topic.replication_factor,
        "assignments": [
            {"partition_index": number, "broker_ids": replicas}
            for number, replicas in topic.assignment.items()
        ],
        "configs": [{"name": key, "value": value} for key, value in topic.configs.items()],
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in partitions:
        grouped[topic].append(number)
    return grouped


def _by_name(answers: Any) -> dict[str, Outcome]:
    return {answer.name: read_outcome(answer) for answer in answers}


def _reassignment_outcomes(response: Any) -> dict[TopicPartition, Outcome]:
    return {
        TopicPartition(topic.name, answer.partition_index): read_outcome(answer)
        for topic in response.responses
        for answer in topic.partitions
    }


def _election_outcomes(response: Any) -> dict[TopicPartition, Outcome]:
    return {
        TopicPartition(topic.topic, answer.partition_id): read_outcome(answer)
        for topic in response.replica_election_results
        for answer in topic.partition_result
    }
