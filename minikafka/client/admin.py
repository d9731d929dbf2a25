"""The administrator's side of the client: topics, partitions, reassignments, elections, settings, log directories.

Invariant: every item of a request (a topic, a partition, a resource) has an `Outcome` of its own; one that
is refused holds nothing else up. What only the controller may do goes to the broker that the metadata
names, and what it hands back with NOT_CONTROLLER is sent again, that alone, to the next one. KafkaError
is raised only when nobody answered in time, or the request as a whole was refused.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import BrokerId, ReplicaAssignment, TopicPartition
from minikafka.base.ports import Clock
from minikafka.client.answers import (
    LogDir,
    Outcome,
    Resource,
    ResourceType,
    Settings,
    read_log_dir,
    read_outcome,
    read_settings,
)
from minikafka.client.attempts import GRACE_MS, Attempts
from minikafka.client.metadata import ClusterInfo, Metadata, TopicInfo, described, error_code
from minikafka.client.network import Address, Network, request
from minikafka.wire import versions

logger = logging.getLogger(__name__)

API_TIMEOUT_MS: Final = 60_000
"""Kafka's `default.api.timeout.ms`."""
BROKER_TIMEOUT_MS: Final = 10_000
"""For one broker to tell or change its own settings."""
LOG_DIRS_TIMEOUT_MS: Final = 1_000
"""For one broker to tell its log directories; one that hangs is left out of the answer."""
POLL_MS: Final = 200
"""How often a reassignment is looked at while it is waited for; the Kafka protocol announces nothing."""
SETTLE_MS: Final = 5_000
"""How long the metadata may lag behind the controller, which tells of a reassignment's end first."""

Item = TypeVar("Item", bound=Hashable)


class NewTopic(NamedTuple):
    """A topic to create; -1 takes the broker's default. `assignment`: replicas by partition."""

    name: str
    partitions: int = -1
    replication_factor: int = -1
    configs: Mapping[str, str] = {}
    assignment: Mapping[int, Sequence[int]] = {}


class Admin:
    """The administrator of a cluster; reached as `client.admin`, it shares the client's connections."""

    def __init__(
        self, network: Network, metadata: Metadata, clock: Clock, request_timeout_ms: int
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._attempts = Attempts(clock, metadata, API_TIMEOUT_MS)

    # Cluster and topics

    async def describe_cluster(self) -> ClusterInfo:
        """Brokers and controller, as a broker knows them."""
        cluster, _ = await self._attempts(lambda: self._metadata.describe(()))
        return cluster

    async def describe(
        self, names: Iterable[str] | None = None
    ) -> tuple[ClusterInfo, list[TopicInfo]]:
        """The cluster and those of these topics (None: all), by name, that a broker knows.

        Any broker is asked, so it is answered also when there is no controller.
        """
        wanted = None if names is None else list(names)
        cluster, topics = await self._attempts(lambda: self._metadata.describe(wanted))
        known = (info for info, error in topics if error is ErrorCode.NONE)
        return cluster, sorted(known, key=lambda info: info.name)

    async def describe_topics(self, names: Iterable[str]) -> dict[str, TopicInfo]:
        """Those of these topics that the controller's broker knows."""
        wanted = [{"name": name} for name in dict.fromkeys(names)]
        body = request(versions.METADATA, topics=wanted, allow_auto_topic_creation=False)

        async def attempt() -> dict[str, TopicInfo]:
            address = await self._metadata.controller()
            _, topics = described(
                await self._network.ask(address, versions.METADATA, self._request_timeout_ms, body)
            )
            return {info.name: info for info, error in topics if error is ErrorCode.NONE}

        return await self._attempts(attempt)

    async def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> dict[str, Outcome]:
        """By topic; waits for the leaders of those created. `validate_only`: just says what would be."""

        def body(pending: Sequence[NewTopic]) -> Any:
            return request(
                versions.CREATE_TOPICS,
                topics=[_creatable(topic) for topic in pending],
                timeout=self._request_timeout_ms,
                validate_only=validate_only,
            )

        by_name = {topic.name: topic for topic in topics}
        return await self._by_controller(
            versions.CREATE_TOPICS,
            by_name,
            lambda names: body([by_name[name] for name in names]),
            lambda response: _by_name(response.topics),
        )

    async def delete_topics(self, names: Iterable[str]) -> dict[str, Outcome]:
        """By topic; a topic that is done is marked for deletion, which goes on by itself."""
        return await self._by_controller(
            versions.DELETE_TOPICS,
            names,
            lambda pending: request(
                versions.DELETE_TOPICS, topic_names=pending, timeout=self._request_timeout_ms
            ),
            lambda response: _by_name(response.responses),
        )

    async def create_partitions(
        self,
        counts: Mapping[str, int],
        assignments: Mapping[str, Sequence[Sequence[BrokerId]]] | None = None,
    ) -> dict[str, Outcome]:
        """Give topics so many partitions in all. `assignments`: replicas of the new ones, in order."""
        given = assignments or {}

        def body(pending: Sequence[str]) -> Any:
            topics = []
            for name in pending:
                new = [{"broker_ids": replicas} for replicas in given.get(name, ())]
                topics.append({"name": name, "count": counts[name], "assignments": new or None})
            timeout = self._request_timeout_ms
            return request(
                versions.CREATE_PARTITIONS, topics=topics, timeout=timeout, validate_only=False
            )

        return await self._by_controller(
            versions.CREATE_PARTITIONS, counts, body, lambda response: _by_name(response.results)
        )

    # Reassignments and elections

    async def alter_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[BrokerId] | None]
    ) -> dict[TopicPartition, Outcome]:
        """Begin to move partitions to these replicas; None: cancel what is under way (KIP-455)."""

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
                timeout=self._request_timeout_ms,
            )

        return await self._by_controller(
            versions.ALTER_PARTITION_REASSIGNMENTS, targets, body, _reassignment_outcomes
        )

    async def list_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, ReplicaAssignment]:
        """What is under way among these partitions (None: all)."""
        topics = None
        if partitions is not None:
            topics = [
                {"name": topic, "partition_indexes": numbers}
                for topic, numbers in _by_topic(partitions).items()
            ]
        body = request(
            versions.LIST_PARTITION_REASSIGNMENTS, topics=topics, timeout=self._request_timeout_ms
        )

        async def attempt() -> dict[TopicPartition, ReplicaAssignment]:
            response = await self._ask_controller(versions.LIST_PARTITION_REASSIGNMENTS, body)
            return {
                TopicPartition(topic.name, p.partition_index): ReplicaAssignment(
                    tuple(map(int, p.replicas)),
                    tuple(map(int, p.adding_replicas)),
                    tuple(map(int, p.removing_replicas)),
                )
                for topic in response.topics
                for p in topic.partitions
            }

        return await self._attempts(attempt)

    async def reassign_partition(
        self, topic: str, partition: int, replicas: Sequence[BrokerId]
    ) -> bool:
        """Move one partition and wait for the end: whether its replicas are these then (K2).

        It waits as long as that takes; who stops waiting (asyncio.timeout) leaves the move running. False
        also when the controller refuses, which is logged, and when the reassignment was cancelled or
        replaced by another while it ran.
        """
        tp = TopicPartition(topic, partition)
        outcome = (await self.alter_reassignments({tp: replicas}))[tp]
        if not outcome.ok:
            logger.error("%s cannot be reassigned to %s: %s", tp, list(replicas), outcome)
            return False
        while await self.list_reassignments([tp]):
            await self._clock.sleep(POLL_MS)
        return not await self.differing({tp: replicas}, SETTLE_MS)

    async def differing(
        self, targets: Mapping[TopicPartition, Sequence[BrokerId]], patience_ms: int = SETTLE_MS
    ) -> dict[TopicPartition, tuple[BrokerId, ...]]:
        """The replicas of those partitions that have others than these, () where there is no such partition.

        Called when no reassignment is under way; what the metadata does not show yet is waited for so long.
        """
        began = self._clock.now()
        while True:
            known = await self.describe_topics({topic for topic, _ in targets})
            differing = {}
            for tp, wanted in targets.items():
                info = known[tp.topic].partitions.get(tp.partition) if tp.topic in known else None
                if info is None or info.replicas != tuple(wanted):
                    differing[tp] = info.replicas if info else ()
            if not differing or self._clock.now() - began >= patience_ms:
                return differing
            await self._clock.sleep(POLL_MS)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, Outcome]:
        """Elect preferred leaders, or any live replica (`unclean`) where there is no leader (KIP-460).

        None: every partition; then those that need no election may be left out of the answer.
        """
        api = versions.ELECT_LEADERS
        if partitions is None:
            return await self._attempts(
                lambda: self._elected_everywhere(self._election(None, unclean))
            )
        return await self._by_controller(
            api, partitions, lambda pending: self._election(pending, unclean), _election_outcomes
        )

    async def _elected_everywhere(self, body: Any) -> dict[TopicPartition, Outcome]:
        found = _election_outcomes(await self._ask_controller(versions.ELECT_LEADERS, body))
        if any(map(_moved, found.values())):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "there is no controller now")
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
            timeout=self._request_timeout_ms,
        )

    # Settings

    async def describe_configs(
        self, resources: Iterable[Resource], *, synonyms: bool = False
    ) -> dict[Resource, Settings]:
        """The settings of each; a broker's own are asked of that broker."""

        def body(asked: Sequence[Resource]) -> Any:
            return request(
                versions.DESCRIBE_CONFIGS,
                resources=[
                    {"resource_type": kind, "resource_name": name, "configuration_keys": None}
                    for kind, name in asked
                ],
                include_synonyms=synonyms,
            )

        found = await self._by_resource(versions.DESCRIBE_CONFIGS, list(resources), body)
        return {
            resource: Settings(answer) if isinstance(answer, Outcome) else read_settings(answer)
            for resource, answer in found.items()
        }

    async def alter_configs(
        self, changes: Mapping[Resource, Mapping[str, str | None]]
    ) -> dict[Resource, Outcome]:
        """Set keys of resources; None deletes one, so that it has its default again (KIP-339)."""

        def body(asked: Sequence[Resource]) -> Any:
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
                    for resource in asked
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
        """What was answered for each: by that broker for a broker, by the controller for the others.

        An `Outcome` stands where a broker gave no answer.
        """
        groups: defaultdict[BrokerId | None, list[Resource]] = defaultdict(list)
        for resource in dict.fromkeys(resources):
            own = resource.type is ResourceType.BROKER and resource.name.isdecimal()
            groups[int(resource.name) if own else None].append(resource)
        answers = await asyncio.gather(
            *(self._resource_answers(broker, api, body(group)) for broker, group in groups.items())
        )
        found: dict[Resource, Any] = {}
        for group, told in zip(groups.values(), answers, strict=True):
            if isinstance(told, Outcome):
                found |= dict.fromkeys(group, told)
                continue
            for answer in told:
                found[Resource(ResourceType(answer.resource_type), answer.resource_name)] = answer
        return found

    async def _resource_answers(self, broker: BrokerId | None, api: int, body: Any) -> Any:
        """The answers of the controller, or of one broker: an Outcome when that one cannot be asked."""
        if broker is None:
            return await self._attempts(partial(self._answers_of_controller, api, body))
        node = (await self.describe_cluster()).brokers.get(broker)
        if node is None:
            return Outcome(ErrorCode.BROKER_NOT_AVAILABLE, f"there is no live broker {broker}")
        try:
            response = await self._network.ask(
                Address(node.host, node.port), api, BROKER_TIMEOUT_MS, body
            )
        except OSError as error:
            return Outcome(ErrorCode.NETWORK_EXCEPTION, f"broker {broker} does not answer: {error}")
        return response.results if api == versions.DESCRIBE_CONFIGS else response.responses

    async def _answers_of_controller(self, api: int, body: Any) -> Any:
        response = await self._ask(api, body)
        answers = response.results if api == versions.DESCRIBE_CONFIGS else response.responses
        if any(answer.error_code == ErrorCode.NOT_CONTROLLER for answer in answers):
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "there is no controller now")
        return answers

    async def _ask(self, api: int, body: Any) -> Any:
        """The controller's answer. Raises KafkaError, OSError."""
        address = await self._metadata.controller()
        return await self._network.ask(address, api, self._request_timeout_ms + GRACE_MS, body)

    # Log directories

    async def describe_log_dirs(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        brokers: Iterable[BrokerId] | None = None,
    ) -> dict[BrokerId, list[LogDir]]:
        """The log directories of these live brokers (None: all), with these partitions (None: all).

        A broker that does not answer soon is left out.
        """
        cluster = await self.describe_cluster()
        wanted = cluster.brokers.keys() if brokers is None else set(brokers)
        nodes = [node for node in cluster.brokers.values() if node.id in wanted]
        topics = None
        if partitions is not None:
            topics = [
                {"topic": topic, "partitions": numbers}
                for topic, numbers in _by_topic(partitions).items()
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
            response = await self._network.ask(address, api, LOG_DIRS_TIMEOUT_MS, body)
        except OSError:
            return None
        return [read_log_dir(found) for found in response.results]

    # The controller

    async def _by_controller(
        self,
        api: int,
        items: Iterable[Item],
        body: Callable[[Sequence[Item]], Any],
        read: Callable[[Any], dict[Item, Outcome]],
    ) -> dict[Item, Outcome]:
        """What the controller says of each item; those of which it says that it rules no more are repeated."""
        pending = list(dict.fromkeys(items))
        found: dict[Item, Outcome] = {}

        async def attempt() -> None:
            nonlocal pending
            found.update(read(await self._ask_controller(api, body(pending))))
            pending = [i for i in pending if i in found and _moved(found[i])]
            if pending:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "there is no controller now")

        silence = Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller said nothing of it")
        wanted = list(pending)
        try:
            if wanted:
                await self._attempts(attempt)
        except KafkaError as error:
            if len(pending) == len(wanted):
                raise
            silence = Outcome(error.code, error.detail)
            found = {item: outcome for item, outcome in found.items() if not _moved(outcome)}
        return {item: found.get(item, silence) for item in wanted}

    async def _ask_controller(self, api: int, body: Any) -> Any:
        """The response. Raises KafkaError with the code of the response as a whole, OSError."""
        response = await self._ask(api, body)
        code = error_code(getattr(response, "error_code", 0))
        if code is not ErrorCode.NONE:
            raise KafkaError(code, getattr(response, "error_message", None) or "")
        return response


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


def _moved(outcome: Outcome) -> bool:
    return outcome.code is ErrorCode.NOT_CONTROLLER


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
