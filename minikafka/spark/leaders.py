"""The leaders of partitions, and the connections to those brokers.

Invariant: a broker's metadata about a partition is ignored if its leader epoch is older than the
known one, so a broker that was cut off cannot lead back to a former leader (KIP-320).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError, ProtocolViolation
from minikafka.base.model import NO_LEADER, TopicPartition
from minikafka.spark import protocol
from minikafka.spark.connection import Connection
from minikafka.spark.deadline import Deadline

logger = logging.getLogger(__name__)

Address: TypeAlias = tuple[str, int]

_METADATA_TIMEOUT_S: Final = 3.0
"""Time limit per broker: a stopped process accepts connections but never responds."""


class Unreachable(MinikafkaError):
    """No broker, or no leader of a partition, answered within the time allowed."""


class Leaders:
    """A client's metadata of some topics; `refresh` renews it, `connection` uses it. Not thread-safe."""

    def __init__(
        self, servers: Sequence[Address], client_id: str, request_timeout_s: float
    ) -> None:
        self._servers = list(servers)
        self._brokers: dict[int, Address] = {}
        self._client_id = client_id
        self._timeout_s = request_timeout_s
        self._leaders: dict[TopicPartition, protocol.PartitionMetadata] = {}
        self._connections: dict[Address, Connection] = {}
        self._silent: set[Address] = set()
        """Brokers that did not answer last time and are asked last."""

    def refresh(self, topics: Sequence[str]) -> None:
        """Ask the known and the configured brokers for metadata, one by one, until one answers.

        Raises `Unreachable` if none does, `KafkaError` if one answers that a topic cannot be read.
        """
        failures = []
        addresses = dict.fromkeys([*self._servers, *self._brokers.values()])
        for address in sorted(addresses, key=self._silent.__contains__):
            try:
                metadata = self._ask(address, topics)
            except (OSError, ProtocolViolation) as error:
                self._silent.add(address)
                failures.append(f"{address[0]}:{address[1]}: {error}")
                continue
            self._silent.discard(address)
            self._brokers = metadata.brokers
            for topic in topics:
                self._merge(topic, metadata.topics[topic])
            return
        raise Unreachable(f"no broker answers ({'; '.join(failures)})")

    def _ask(self, address: Address, topics: Sequence[str]) -> protocol.Metadata:
        connection = Connection(
            *address, self._client_id, min(self._timeout_s, _METADATA_TIMEOUT_S)
        )
        try:
            answer = connection.call(protocol.METADATA, protocol.metadata_request(topics))
        finally:
            connection.close()
        metadata = protocol.parse_metadata(answer)
        if missing := set(topics) - metadata.topics.keys():
            raise ProtocolViolation(f"the broker's metadata lacks {', '.join(sorted(missing))}")
        return metadata

    def _merge(self, topic: str, metadata: protocol.TopicMetadata) -> None:
        raise_if_final(metadata.error, topic)
        for index, partition in metadata.partitions.items():
            tp = TopicPartition(topic, index)
            known = self._leaders.get(tp)
            if known is None or partition.leader_epoch >= known.leader_epoch:
                self._leaders[tp] = partition

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return all known partitions of these topics, in order."""
        wanted = set(topics)
        return sorted(tp for tp in self._leaders if tp.topic in wanted)

    def address(self, tp: TopicPartition) -> Address | None:
        """Return the address of the partition's leader; None while no live leader is known."""
        known = self._leaders.get(tp)
        if known is None or known.leader <= NO_LEADER:
            return None
        return self._brokers.get(known.leader)

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the known leader epoch, sent with requests so that a leader in another epoch
        refuses them.
        """
        return self._leaders[tp].leader_epoch

    def connection(self, address: Address) -> Connection:
        """Return the open connection to a broker, or a new one. Raises OSError."""
        if address not in self._connections:
            self._connections[address] = Connection(*address, self._client_id, self._timeout_s)
        return self._connections[address]

    def drop(self, address: Address) -> None:
        """Close and forget the connection; responses still to come are lost."""
        if connection := self._connections.pop(address, None):
            connection.close()

    def close(self) -> None:
        """Close all connections."""
        for address in list(self._connections):
            self.drop(address)

    def list_offsets(
        self, partitions: Sequence[TopicPartition], timestamp: int, deadline: Deadline
    ) -> dict[TopicPartition, int]:
        """Ask the leaders for the earliest offset or the high watermark of each partition.

        Follows leader changes until the deadline, then raises `Unreachable`; `KafkaError` for final
        errors.
        """
        found: dict[TopicPartition, int] = {}
        while missing := [tp for tp in partitions if tp not in found]:
            for address, group in self._by_leader(missing).items():
                found |= self._list_from(address, group, timestamp)
            if len(found) < len(partitions):
                self.wait_and_refresh(missing, deadline)
        return found

    def _by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[Address, list[TopicPartition]]:
        groups: dict[Address, list[TopicPartition]] = {}
        for tp in partitions:
            if address := self.address(tp):
                groups.setdefault(address, []).append(tp)
        return groups

    def _list_from(
        self, address: Address, partitions: Sequence[TopicPartition], timestamp: int
    ) -> dict[TopicPartition, int]:
        """Ask one broker for the offsets; partitions that it does not lead are left out of the result."""
        asked = {tp: (self.leader_epoch(tp), timestamp) for tp in partitions}
        try:
            connection = self.connection(address)
            answer = connection.call(protocol.LIST_OFFSETS, protocol.list_offsets_request(asked))
        except OSError as error:
            logger.info("Broker %s:%d does not answer: %s", *address, error)
            self.drop(address)
            return {}
        answers = protocol.parse_list_offsets(answer)
        for tp, response in answers.items():
            raise_if_final(response.error, str(tp))
        return {
            tp: response.offset
            for tp, response in answers.items()
            if response.error == ErrorCode.NONE
        }

    def wait_and_refresh(self, partitions: Sequence[TopicPartition], deadline: Deadline) -> None:
        """Sleep briefly, then refresh the metadata. Raises `Unreachable` if the deadline has passed."""
        if not deadline.wait_to_retry():
            names = ", ".join(str(tp) for tp in partitions)
            raise Unreachable(f"no leader answers for {names}")
        self.try_to_refresh(partitions)

    def try_to_refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Refresh the metadata; keep the old metadata if no broker answers."""
        try:
            self.refresh(list(dict.fromkeys(tp.topic for tp in partitions)))
        except Unreachable as error:
            logger.info("%s", error)


def raise_if_final(code: int, subject: str) -> None:
    """Raise `KafkaError` for an error code that a retry cannot fix."""
    try:
        error = ErrorCode(code)
    except ValueError:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{subject}: code {code}") from None
    if error is not ErrorCode.NONE and not error.retriable:
        raise KafkaError(error, subject)
