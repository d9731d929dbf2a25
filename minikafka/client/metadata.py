"""What a client knows of the cluster: brokers, and who leads which partition.

Invariant: for one incarnation of a topic a partition's leader is never replaced by one of an older
leader epoch (KIP-320: the broker that was asked may lag behind). What is known is used until
somebody found it wrong (`invalidate`); then the next question refreshes it, once for all who wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import NO_LEADER, Node
from minikafka.client.network import Address, Network, request
from minikafka.wire import codec
from minikafka.wire.versions import METADATA

REFRESH_TIMEOUT_MS: Final = 5_000
"""For one broker to answer; then the next one is asked."""


class PartitionInfo(NamedTuple):
    """One partition; `leader` is -1 when there is none, `error` the Kafka code that says why."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error: int


class TopicInfo(NamedTuple):
    """One topic; `topic_id` is 16 bytes."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionInfo]


class ClusterInfo(NamedTuple):
    """The cluster; `controller_id` is -1 when nobody rules."""

    cluster_id: str | None
    controller_id: int
    brokers: dict[int, Node]


class Leader(NamedTuple):
    """Where to send what concerns a partition."""

    node: int
    address: Address
    leader_epoch: int


class NobodyAnswers(ConnectionError):
    """None of the brokers that are known, or were given, can be reached."""


class Metadata:
    """Metadata of the topics that were asked for."""

    def __init__(self, network: Network, bootstrap: Sequence[Address]) -> None:
        self._network = network
        self._bootstrap = bootstrap
        self._cluster = ClusterInfo(None, -1, {})
        self._topics: dict[str, TopicInfo] = {}
        self._stale = False
        self._refreshing = asyncio.Lock()

    def invalidate(self) -> None:
        """Somebody was sent to the wrong broker."""
        self._stale = True

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """What is known of a topic. `create`: let the broker create it, if it is configured to.

        Raises KafkaError with the topic's code, and OSError.
        """
        async with self._refreshing:
            errors: dict[str, ErrorCode] = {}
            if name not in self._topics:
                errors = await self._refresh([name], create=create)
            elif self._stale:
                errors = await self._refresh(self._topics, create=False)
                self._stale = False
            if name not in self._topics:
                raise KafkaError(errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), name)
            return self._topics[name]

    async def leader(self, name: str, partition: int) -> Leader:
        """Who leads a partition. Raises KafkaError LEADER_NOT_AVAILABLE and the like, and OSError."""
        info = (await self.topic(name)).partitions.get(partition)
        if info is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{name}-{partition}")
        node = self._cluster.brokers.get(info.leader)
        if node is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{name}-{partition}")
        return Leader(node.id, Address(node.host, node.port), info.leader_epoch)

    async def controller(self) -> Address:
        """Where the controller is now. Raises KafkaError(NOT_CONTROLLER) when nobody is, OSError."""
        await self.describe(())
        node = self._cluster.brokers.get(self._cluster.controller_id)
        if node is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "there is no controller now")
        return Address(node.host, node.port)

    async def describe(
        self, names: Iterable[str] | None
    ) -> tuple[ClusterInfo, list[tuple[TopicInfo, ErrorCode]]]:
        """The cluster and these topics (None: all) with their errors, as a broker tells it now."""
        self._cluster, topics = described(await self._ask(names, create=False))
        return self._cluster, topics

    async def any_address(self) -> Address:
        """A broker that may be asked for anything. Raises OSError."""
        if not self._cluster.brokers:
            await self.describe(())
        return self._candidates()[0]

    async def _refresh(self, names: Iterable[str], *, create: bool) -> dict[str, ErrorCode]:
        """Learn about these topics; the errors of those that nothing is known of now."""
        response = await self._ask(names, create=create)
        self._cluster = _cluster_info(response)
        errors: dict[str, ErrorCode] = {}
        for entity in response.topics:
            info = _topic_info(entity)
            error = error_code(entity.error_code)
            if error is ErrorCode.NONE:
                self._topics[info.name] = _newest(info, self._topics.get(info.name))
            else:
                self._topics.pop(info.name, None)
                errors[info.name] = error
        return errors

    async def _ask(self, names: Iterable[str] | None, *, create: bool) -> codec.Entity:
        """A Metadata response from the first broker that gives one. Raises OSError."""
        topics = None if names is None else [{"name": name} for name in sorted(names)]
        body = request(METADATA, topics=topics, allow_auto_topic_creation=create)
        failure: OSError = ConnectionError("no broker is known")
        candidates = self._candidates()
        for address in candidates:
            try:
                return await self._network.ask(address, METADATA, REFRESH_TIMEOUT_MS, body)
            except OSError as error:
                failure = error
        asked = ",".join(f"{address.host}:{address.port}" for address in candidates)
        raise NobodyAnswers(
            f"no broker answers at {asked} ({failure.strerror or failure}): "
            "is the cluster up, and are these its addresses?"
        ) from failure

    def _candidates(self) -> list[Address]:
        known = {Address(node.host, node.port) for node in self._cluster.brokers.values()}
        rest = set(self._bootstrap) - known
        return self._network.least_loaded(known) + self._network.least_loaded(rest)


def described(response: codec.Entity) -> tuple[ClusterInfo, list[tuple[TopicInfo, ErrorCode]]]:
    """What a Metadata response says: the cluster, and topics with their errors."""
    return _cluster_info(response), [
        (_topic_info(entity), error_code(entity.error_code)) for entity in response.topics
    ]


def error_code(number: int) -> ErrorCode:
    """The code, UNKNOWN_SERVER_ERROR for one that minikafka has no use for."""
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
    return TopicInfo(entity.name or "", codec.id_bytes(entity.topic_id), partitions)


def _newest(told: TopicInfo, known: TopicInfo | None) -> TopicInfo:
    """What was told, but for partitions of which something newer is known already."""
    if known is None or known.topic_id != told.topic_id:
        return told
    partitions = dict(told.partitions)
    for number, old in known.partitions.items():
        new = partitions.get(number)
        if new is not None and new.leader_epoch < old.leader_epoch and old.leader != NO_LEADER:
            partitions[number] = old
    return told._replace(partitions=partitions)
