"""A client's metadata: the brokers, and the leader of each partition.

Invariant: metadata is cached until `invalidate` is called. The next lookup then refreshes the metadata, once for all
concurrent callers. `base/known_cluster.py` decides which response about a leader counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.known_cluster import KnownCluster
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import Node, TopicPartition
from minikafka.client.network import Address, AddressUnreachable, Network, request
from minikafka.client.waits import Waits
from minikafka.kafka.messages.decoder import Entity
from minikafka.kafka.wire.versions import METADATA

REFRESH_TIMEOUT_MS: Final = 5_000
"""Time for one broker to answer before the next broker is tried."""


class PartitionInfo(NamedTuple):
    """One partition. `leader` is -1 if there is no leader; `error` is then Kafka's error code."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: int


class TopicInfo(NamedTuple):
    """One topic; `topic_id` is 16 bytes. Only coordinators write to an internal topic."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionInfo]
    is_internal: bool = False


class ClusterInfo(NamedTuple):
    """The id, controller and brokers of a cluster; `controller_id` is -1 if there is no controller."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Node]


class Leader(NamedTuple):
    """The leader of a partition: its broker id, its address, and its leader epoch."""

    node: int
    address: Address
    leader_epoch: int


class NoBrokerAnswers(ConnectionError):
    """None of the known brokers and bootstrap servers answers.

    `was_never_reached`: no broker has ever answered this client, and no address accepts connections.
    """

    def __init__(self, text: str, *, was_never_reached: bool) -> None:
        super().__init__(text)
        self.was_never_reached = was_never_reached


class Metadata:
    """The cached metadata of the cluster and of the topics that were looked up."""

    def __init__(
        self,
        network: Network,
        bootstrap: Sequence[Address],
        request_timeout_ms: int = REFRESH_TIMEOUT_MS,
    ) -> None:
        self._network = network
        self._timeout_ms = min(request_timeout_ms, REFRESH_TIMEOUT_MS)
        self._bootstrap = bootstrap
        self._known: KnownCluster[PartitionInfo] = KnownCluster()
        self._topics: dict[str, TopicInfo] = {}
        self._stale = False
        self._refreshing = asyncio.Lock()
        self.waits = Waits()
        """The waits of this client's calls."""

    def invalidate(self) -> None:
        """Mark the metadata as stale, because a request went to the wrong broker or failed."""
        self._stale = True

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """Return the metadata of a topic. `create`: the broker creates a missing topic if its settings allow it.

        Raises KafkaError with the topic's error code. Raises OSError.
        """
        async with self._refreshing:
            errors: dict[str, ErrorCode] = {}
            if name not in self._topics:
                errors = await self._refresh([name], create=create)
            elif self._stale:
                errors = await self._refresh_all()
            if name not in self._topics:
                raise AnsweredError(errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name)
            return self._topics[name]

    async def _refresh_all(self) -> dict[str, ErrorCode]:
        """Refresh the metadata of all known topics.

        If they are invalidated during the call, they stay stale: the response may be older than that.
        """
        self._stale = False
        try:
            return await self._refresh(self._topics, create=False)
        except BaseException:
            self._stale = True
            raise

    async def leader(self, name: str, partition: int) -> Leader:
        """Return the leader of a partition. Raises KafkaError (LEADER_NOT_AVAILABLE and others), and OSError."""
        known = (await self.topic(name)).partitions
        info = known.get(partition)
        if info is None:
            last = max(known, default=0)
            has = (
                f"topic {name} has the partitions 0 to {last}"
                if last
                else "its only partition is 0"
            )
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise AnsweredError(code, f"{name}-{partition}", f"there is no such partition; {has}")
        address = self._known.address(TopicPartition(name, partition))
        if address is None:
            raise AnsweredError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{partition}")
        return Leader(info.leader, Address(*address), info.leader_epoch)

    async def controller(self) -> Address:
        """Return the address of the controller, from fresh metadata.

        Raises KafkaError(NOT_CONTROLLER) when there is no controller. Raises OSError.
        """
        await self.describe(())
        address = self._known.controller
        if address is None:
            raise KafkaError(
                ErrorCode.NOT_CONTROLLER, "no broker names an active controller at the moment"
            )
        return Address(*address)

    async def describe(
        self, names: Iterable[str] | None
    ) -> tuple[ClusterInfo, list[tuple[TopicInfo, ErrorCode]]]:
        """Request metadata; return the cluster, and these topics (None: all topics) with their error codes.

        Raises OSError.
        """
        cluster, topics = read_metadata(await self._request(names, create=False))
        self._learn_brokers(cluster)
        return cluster, topics

    async def any_address(self) -> Address:
        """Return the address of any broker, for a request that every broker can answer. Raises OSError."""
        if not self._known.brokers:
            await self.describe(())
        return self._candidates()[0]

    def _learn_brokers(self, cluster: ClusterInfo) -> None:
        brokers = {node.id: Address(node.host, node.port) for node in cluster.brokers.values()}
        self._known.learn_brokers(brokers, brokers.get(cluster.controller_id))

    async def _refresh(self, names: Iterable[str], *, create: bool) -> dict[str, ErrorCode]:
        """Refresh the metadata of these topics; return the error codes of the topics that failed."""
        response = await self._request(names, create=create)
        self._learn_brokers(_cluster_info(response))
        errors: dict[str, ErrorCode] = {}
        for entity in response.topics:
            info = _topic_info(entity)
            error = error_code(entity.error_code)
            if error is ErrorCode.NONE:
                newest = self._known.learn_topic(info.name, info.topic_id, info.partitions)
                self._topics[info.name] = info._replace(partitions=newest)
            else:
                self._topics.pop(info.name, None)
                self._known.forget_topic(info.name)
                errors[info.name] = error
        return errors

    async def _request(self, names: Iterable[str] | None, *, create: bool) -> Entity:
        """Return the Metadata response of the first broker that answers. Raises OSError."""
        topics = None if names is None else [{"name": name} for name in sorted(names)]
        body = request(METADATA, topics=topics, allow_auto_topic_creation=create)
        failure: OSError = ConnectionError("no broker is known")
        is_reachable = False
        candidates = self._candidates()
        for address in candidates:
            try:
                return await self._network.call(address, METADATA, self._timeout_ms, body)
            except OSError as error:
                failure = error
                is_reachable = is_reachable or not isinstance(error, AddressUnreachable)
        question = "is the cluster up, and are these its addresses?"
        if is_reachable and not self._known.brokers:
            question += " Does the listener demand TLS or a login?"
        tried = ",".join(f"{address.host}:{address.port}" for address in candidates)
        raise NoBrokerAnswers(
            f"no broker answers at {tried} ({failure.strerror or failure}): {question}",
            was_never_reached=not is_reachable and not self._known.brokers,
        ) from failure

    def _candidates(self) -> list[Address]:
        known = {Address(*address) for address in self._known.brokers.values()}
        rest = set(self._bootstrap) - known
        return self._network.least_loaded(known) + self._network.least_loaded(rest)


def read_metadata(response: Entity) -> tuple[ClusterInfo, list[tuple[TopicInfo, ErrorCode]]]:
    """Return the cluster in a Metadata response, and the topics with their error codes."""
    return _cluster_info(response), [
        (_topic_info(entity), error_code(entity.error_code)) for entity in response.topics
    ]


def error_code(number: int) -> ErrorCode:
    """Return the ErrorCode with this number; UNKNOWN_SERVER_ERROR if minikafka does not define it."""
    try:
        return ErrorCode(int(number))
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def _cluster_info(response: Any) -> ClusterInfo:
    nodes = (Node(int(b.node_id), b.host, b.port, b.rack) for b in response.brokers)
    return ClusterInfo(
        response.cluster_id, int(response.controller_id), {node.id: node for node in nodes}
    )


def _topic_info(entity: Any) -> TopicInfo:
    partitions = {}
    for p in entity.partitions:
        partitions[p.partition_index] = PartitionInfo(
            p.partition_index,
            int(p.leader_id),
            p.leader_epoch,
            tuple(map(int, p.replica_nodes)),
            tuple(map(int, p.isr_nodes)),
            tuple(map(int, p.offline_replicas)),
            int(p.error_code),
        )
    topic_id = entity.topic_id
    return TopicInfo(entity.name or "", topic_id, partitions, entity.is_internal)
