"""The leaders of partitions, and the connections to these brokers.

`base/known_cluster.py` decides which response about a leader counts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from minikafka.base.config.client import ClientConfig
from minikafka.base.errors import ErrorCode, MinikafkaError, ProtocolViolation
from minikafka.base.known_cluster import Address, KnownCluster
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import TopicPartition
from minikafka.spark.wire import protocol
from minikafka.spark.wire.connection import BlockingConnection
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.protocol import Isolation
from minikafka.spark.wire.rights import missing_right
from minikafka.spark.wire.security import PLAIN
from minikafka.spark.wire.topics import CREATE_TOPICS

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Found = TypeVar("Found")

_NEW_TOPIC_S: Final = 5.0
"""Retry time for an unknown topic if the controller does not answer. A broker may not know a new topic yet."""
_SETTLED_S: Final = 0.3
"""Retry time for a topic that is unknown to the controller. With KRaft, any broker may be named as controller."""
_CREATION_S: Final = 30.0
"""Retry time for a topic that the brokers were asked to create."""
_METADATA_TIMEOUT_S: Final = 3.0
"""Time limit per broker. Needed because a suspended process accepts connections but never responds."""


class Unreachable(MinikafkaError):
    """No broker, or no leader of a partition, answered within the time limit."""


@dataclass(frozen=True)
class _Question:
    """A kind of request to leaders. The response has an offset and a leader epoch for each partition."""

    api: tuple[int, int]
    request: Callable[[Mapping[TopicPartition, tuple[int, int]]], bytes]
    """Returns the request body for each partition's (leader epoch, requested time or epoch)."""
    parse: Callable[[memoryview], dict[TopicPartition, protocol.OffsetResponse]]


class Position(NamedTuple):
    """An offset with a leader epoch and a topic id.

    The leader epoch is -1 and the topic id is empty if the broker did not send them.
    """

    offset: int
    leader_epoch: int
    topic_id: str = ""

    def is_of_another_topic(self, other: Position) -> bool:
        """True if both positions have a topic id and the ids differ: the topic was recreated (KIP-516)."""
        return bool(self.topic_id and other.topic_id) and self.topic_id != other.topic_id


class LeaderConnections:
    """The leaders of partitions, and the connections to brokers. `refresh` updates the leaders. Not thread-safe."""

    def __init__(
        self,
        servers: Sequence[Address],
        client_id: str,
        request_timeout_s: float,
        isolation: Isolation = Isolation.READ_UNCOMMITTED,
        security: ClientConfig = PLAIN,
    ) -> None:
        self.isolation = isolation
        self._security = security
        self._servers = list(servers)
        self._client_id = client_id
        self._timeout_s = request_timeout_s
        self._known: KnownCluster[protocol.PartitionMetadata] = KnownCluster()
        self._connections: dict[Address, BlockingConnection] = {}
        self._silent: set[Address] = set()
        """Brokers that did not answer the last request. These brokers are asked last."""
        self._answered: Address | None = None
        """The broker that answered the last request of `call_any`."""
        self._asks_controller = False
        """True while the controller is asked for a topic that another broker did not know."""

    def refresh(self, topics: Sequence[str], *, creates: bool = False) -> None:
        """Update the leaders of the topics. Asks the known and the configured brokers until one answers.

        `creates`: ask the brokers to create missing topics. Raises `Unreachable` if no broker answers, and
        `KafkaError` for an error that a retry cannot fix.
        """
        found = self._metadata(topics, creates)
        api = CREATE_TOPICS if creates else protocol.METADATA
        for topic in topics:
            raise_if_final(found[topic].error, topic, api, topic)
            self._known.learn_topic(topic, found[topic].topic_id, found[topic].partitions)

    def find(
        self,
        ask: Callable[[], tuple[Found, Sequence[str]]],
        deadline: Deadline,
        *,
        creates: bool = False,
    ) -> tuple[Found, Sequence[str]]:
        """Return the result of `ask`: the data found, and the names of missing topics or partitions.

        If names are missing, `ask` is retried until the controller does not know them either, or until the
        brokers had the time to create them if `creates` is true. The controller knows each topic whose creation
        was acknowledged, but another broker may not know it yet. If no broker answers, `ask` is retried until the
        deadline, and then `Unreachable` is raised.
        """
        patience = Deadline(min(_CREATION_S if creates else _NEW_TOPIC_S, deadline.left()))
        settled = Deadline(_SETTLED_S)
        try:
            while True:
                try:
                    found, missing = ask()
                    is_final = not creates and self._controller_answered() and not settled.left()
                    if not missing or is_final or not patience.wait_to_retry():
                        return found, missing
                    self._asks_controller = True
                except Unreachable:
                    if not deadline.wait_to_retry():
                        raise
        finally:
            self._asks_controller = False

    def _controller_answered(self) -> bool:
        controller = self._known.controller
        return controller is not None and self._answered == controller

    def list_topics(self) -> list[str]:
        """Return the names of all topics that are not internal. Raises `Unreachable`."""
        found = self._metadata(None)
        return sorted(name for name, topic in found.items() if not topic.is_internal)

    def _metadata(
        self, topics: Sequence[str] | None, creates: bool = False
    ) -> dict[str, protocol.TopicMetadata]:
        def parse(answer: memoryview) -> protocol.MetadataResponse:
            metadata = protocol.parse_metadata(answer)
            if missing := set(topics or ()) - metadata.topics.keys():
                raise ProtocolViolation(f"the broker's metadata lacks {', '.join(sorted(missing))}")
            return metadata

        body = protocol.metadata_request(topics, creates=creates)
        metadata = self.call_any(protocol.METADATA, body, parse)
        self._known.learn_brokers(metadata.brokers, metadata.controller)
        return metadata.topics

    def call_any(
        self, api: tuple[int, int], body: bytes, parse: Callable[[memoryview], Answer]
    ) -> Answer:
        """Send a request to one broker after another until a broker answers. Return the parsed response.

        Raises `Unreachable` if no broker answers.
        """
        failures = []
        controller = self._known.controller
        first = [controller] if self._asks_controller and controller else []
        addresses = dict.fromkeys([*first, *self._servers, *self._known.brokers.values()])
        for address in sorted(addresses, key=self._silent.__contains__):
            try:
                answer = parse(self._call(address, api, body))
            except (OSError, ProtocolViolation) as error:
                self._silent.add(address)
                failures.append(f"{address[0]}:{address[1]}: {error}")
                continue
            self._silent.discard(address)
            self._answered = address
            return answer
        raise Unreachable(f"no broker answers ({'; '.join(failures)})")

    def call_all(
        self, api: tuple[int, int], body: bytes, parse: Callable[[memoryview], Answer]
    ) -> list[Answer]:
        """Send a request to every known broker, and return the parsed responses of those that answer."""
        found = []
        for address in self._known.brokers.values():
            try:
                found.append(parse(self._call(address, api, body)))
            except (OSError, ProtocolViolation) as error:
                logger.info("Broker %s:%d does not answer: %s", *address, error)
        return found

    def call_controller(
        self, api: tuple[int, int], body: bytes, parse: Callable[[memoryview], Answer]
    ) -> Answer | None:
        """Send a request to the controller. Return the parsed response; None if the controller does not answer.

        Raises `Unreachable` if no broker answers.
        """
        self._metadata([])
        address = self._known.controller or self._answered
        assert address is not None
        try:
            return parse(self.connection(address).call(api, body))
        except OSError as error:
            self._lose(address, error)
            return None

    def _call(self, address: Address, api: tuple[int, int], body: bytes) -> memoryview:
        """Send a request on the open connection to a broker if it is not busy, otherwise on a new one.

        A connection that has been closed in the meantime is replaced.
        """
        kept = self._connections.get(address)
        if kept is not None and not kept.is_busy:
            try:
                return self._call_briefly(kept, api, body)
            except (OSError, ProtocolViolation) as error:
                self.drop(address)
                if not isinstance(error, ConnectionError):
                    raise
        timeout_s = min(self._timeout_s, _METADATA_TIMEOUT_S)
        connection = self._connect(address, timeout_s)
        try:
            answer = self._call_briefly(connection, api, body)
        except BaseException:
            connection.close()
            raise
        if self._connections.setdefault(address, connection) is not connection:
            connection.close()
        return answer

    def _call_briefly(
        self, connection: BlockingConnection, api: tuple[int, int], body: bytes
    ) -> memoryview:
        connection.limit(min(self._timeout_s, _METADATA_TIMEOUT_S))
        answer = connection.call(api, body)
        connection.limit(self._timeout_s)
        return answer

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return all known partitions of these topics, sorted."""
        return self._known.partitions(topics)

    def know(self, partitions: Iterable[TopicPartition]) -> bool:
        """True if the leaders of all these partitions are known. The knowledge may be old."""
        return all(self._known.partition(tp) is not None for tp in partitions)

    def broker_count(self) -> int:
        """Return the number of live brokers, as the last metadata has it."""
        return len(self._known.brokers)

    def address(self, tp: TopicPartition) -> Address | None:
        """Return the address of the partition's leader; None if no live leader is known."""
        return self._known.address(tp)

    def leader_epoch(self, tp: TopicPartition) -> int:
        """Return the known leader epoch of a partition.

        Requests contain this epoch. A broker refuses the request if the partition has another leader epoch.
        """
        known = self._known.partition(tp)
        assert known is not None, f"no metadata about {tp} was read"
        return known.leader_epoch

    def connection(self, address: Address) -> BlockingConnection:
        """Return the open connection to a broker, or a new one. Raises OSError."""
        if address not in self._connections:
            self._connections[address] = self._connect(address, self._timeout_s)
        return self._connections[address]

    def _connect(self, address: Address, timeout_s: float) -> BlockingConnection:
        return BlockingConnection(*address, self._client_id, timeout_s, self._security)

    def drop(self, address: Address) -> None:
        """Close and remove the connection to a broker. Outstanding responses are lost."""
        if connection := self._connections.pop(address, None):
            connection.close()

    def forget(self) -> None:
        """Forget the leaders and the topic ids. Topics may be created again, with lower leader epochs."""
        self._known.forget_topics()

    def drop_closed(self) -> None:
        """Drop the connections that the brokers have closed, or that wait for a response."""
        for address, connection in list(self._connections.items()):
            if not connection.is_reusable:
                self.drop(address)

    def close(self) -> None:
        """Close all connections."""
        for address in list(self._connections):
            self.drop(address)

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        deadline: Deadline,
        isolation: Isolation | None = None,
    ) -> dict[TopicPartition, Position]:
        """Return the position of each partition's first record at or after a time; offset -1 if all are earlier.

        `wanted`: the time for each partition: Unix milliseconds, EARLIEST or LATEST. `isolation`: None for the one of
        this client. Retries after leader changes,
        until the deadline. Raises `Unreachable` at the deadline, and `KafkaError` for an error that a retry cannot
        fix.
        """

        def request(asked: Mapping[TopicPartition, tuple[int, int]]) -> bytes:
            level = self.isolation if isolation is None else isolation
            return protocol.list_offsets_request(asked, level)

        question = _Question(protocol.LIST_OFFSETS, request, protocol.parse_list_offsets)
        return self._ask_leaders(question, wanted, deadline)

    def epoch_ends(
        self, wanted: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[TopicPartition, Position]:
        """Return the end of the wanted leader epoch of each partition (KIP-320): an epoch and an offset.

        The epoch is the largest epoch with records that does not exceed the wanted epoch. The offset is the
        offset after the last record of this epoch. Raises the same errors as `list_offsets`.
        """
        question = _Question(
            protocol.OFFSET_FOR_LEADER_EPOCH,
            protocol.epoch_ends_request,
            protocol.parse_epoch_ends,
        )
        return self._ask_leaders(question, wanted, deadline)

    def _ask_leaders(
        self, question: _Question, wanted: Mapping[TopicPartition, int], deadline: Deadline
    ) -> dict[TopicPartition, Position]:
        found: dict[TopicPartition, Position] = {}
        while missing := [tp for tp in wanted if tp not in found]:
            groups = self._by_leader(missing)
            asked = [
                address
                for address, group in groups.items()
                if self._ask_leader(question, address, {tp: wanted[tp] for tp in group})
            ]
            for address in asked:
                found |= self._answer_of_leader(question, address)
            if len(found) < len(wanted):
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

    def _ask_leader(
        self, question: _Question, address: Address, wanted: Mapping[TopicPartition, int]
    ) -> bool:
        """Send one request to one broker. Return False if the broker cannot be reached."""
        body = question.request({tp: (self.leader_epoch(tp), what) for tp, what in wanted.items()})
        try:
            self.connection(address).send(question.api, body)
        except OSError as error:
            self._lose(address, error)
            return False
        return True

    def _answer_of_leader(
        self, question: _Question, address: Address
    ) -> dict[TopicPartition, Position]:
        """Return the positions in the response of one broker.

        Partitions with a retriable error are left out. Return {} if the broker does not answer.
        """
        try:
            answer = self.connection(address).receive()
        except OSError as error:
            self._lose(address, error)
            return {}
        answers = question.parse(answer)
        for tp, response in answers.items():
            raise_if_final(response.error, str(tp), question.api, tp.topic)
        return {
            tp: Position(
                response.offset, response.leader_epoch, str(self._known.topic_id(tp.topic))
            )
            for tp, response in answers.items()
            if response.error == ErrorCode.NONE
        }

    def _lose(self, address: Address, error: OSError) -> None:
        logger.info("Broker %s:%d does not answer: %s", *address, error)
        self.drop(address)

    def wait_and_refresh(self, partitions: Sequence[TopicPartition], deadline: Deadline) -> None:
        """Sleep briefly, then refresh the leaders. Raises `Unreachable` if the deadline has passed."""
        if not deadline.wait_to_retry():
            names = ", ".join(str(tp) for tp in partitions)
            raise Unreachable(f"no leader answers for {names}")
        self.try_to_refresh(partitions)

    def try_to_refresh(self, partitions: Iterable[TopicPartition]) -> None:
        """Refresh the leaders. Keep the old leaders if no broker answers."""
        try:
            self.refresh(list(dict.fromkeys(tp.topic for tp in partitions)))
        except Unreachable as error:
            logger.info("%s", error)


def raise_if_final(code: int, subject: str, api: tuple[int, int], name: str) -> None:
    """Raise `AnsweredError` for an error code that a retry cannot fix.

    `api`: the refused request. `name`: the topic, group or transactional id to which the client may lack a right.
    """
    try:
        error = ErrorCode(code)
    except ValueError:
        raise AnsweredError(ErrorCode.UNKNOWN_SERVER_ERROR, subject, f"code {code}") from None
    if error is not ErrorCode.NONE and not error.retriable:
        raise AnsweredError(error, subject, missing_right(error, api[0], name))
