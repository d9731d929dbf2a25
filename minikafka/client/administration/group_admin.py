"""The administrator's side of consumer groups: list, describe, delete; read, change and delete offsets.

Invariant: each group or partition of a request has its own `Outcome`; if one is refused, the others are still
processed. KafkaError is raised only when no coordinator answered in time, or when the request as a whole was
refused.

The assignment of a member is in the encoding of all clients (Kafka's ConsumerProtocol), because brokers store these
bytes without reading them. Versions 1 to 3 have the same fields as version 0, and later bytes are ignored.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from minikafka.base.arguments import several
from minikafka.base.errors import ErrorCode, KafkaError, ProtocolViolation
from minikafka.base.meanings import AnsweredError
from minikafka.base.model import BrokerId, Node, TopicPartition
from minikafka.client.administration.coordinators import (
    GROUP,
    MOVED,
    Coordinators,
    read_coordinator,
)
from minikafka.client.administration.group_offsets import (
    OffsetAndMetadata,
    commit_request,
    delete_request,
    fetch_request,
    partition_codes,
    read_committed,
)
from minikafka.client.administration.results import Outcome
from minikafka.client.metadata import Metadata, error_code
from minikafka.client.network import Address, Network, request
from minikafka.client.retries import Retries
from minikafka.kafka.messages.decoder import decode
from minikafka.kafka.messages.table import record
from minikafka.kafka.wire import versions

T = TypeVar("T")


class GroupListing(NamedTuple):
    """A group in a list of groups. `protocol_type` is empty for a group that has only committed offsets."""

    group: str
    protocol_type: str
    state: str


class MemberDescription(NamedTuple):
    """A member of a group. `partitions` is empty if the member is not a consumer."""

    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]


class GroupDescription(NamedTuple):
    """A group. `state` is Dead if the group does not exist. `assignor` is set only while `state` is Stable."""

    group: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: Node
    members: tuple[MemberDescription, ...]


class GroupAdmin:
    """The administrative requests about groups, available as `client.groups`."""

    def __init__(
        self,
        network: Network,
        metadata: Metadata,
        retries: Retries,
        request_timeout_ms: int,
    ) -> None:
        self._network = network
        self._metadata = metadata
        self._retries = retries
        self._timeout_ms = request_timeout_ms
        self._coordinators = Coordinators(GROUP, network, metadata, retries, request_timeout_ms)

    async def list_groups(self, states: Sequence[str] = ()) -> list[GroupListing]:
        """Return the consumer groups of all brokers, sorted by name. `states`: only groups in these states.

        Raises KafkaError if a broker does not answer, because the groups of this broker would be missing.
        """
        body = request(versions.LIST_GROUPS, states_filter=several(str, states))
        answers = await self._coordinators.call_every_broker(versions.LIST_GROUPS, body)
        return sorted({group for _, answer in answers for group in _listings(answer)})

    async def list_by_coordinator(self) -> dict[BrokerId, list[GroupListing]]:
        """Return the groups by the broker that coordinates them. Brokers that do not answer are left out."""
        body = request(versions.LIST_GROUPS, states_filter=[])
        answers = await self._coordinators.call_those_that_answer(versions.LIST_GROUPS, body)
        return {node.id: _listings(answer) for node, answer in answers}

    async def describe(self, groups: Iterable[str]) -> dict[str, GroupDescription]:
        """Return the state and the members of these groups. Raises KafkaError."""
        found: dict[str, GroupDescription] = {}

        def read(node: Node, response: Any) -> dict[str, Outcome]:
            outcomes = {}
            for group in response.groups:
                outcomes[group.group_id] = Outcome(error_code(group.error_code))
                found[group.group_id] = _description(group, node)
            return outcomes

        def body(some: Sequence[str]) -> Any:
            return request(versions.DESCRIBE_GROUPS, groups=some)

        outcomes = await self._coordinators.call(groups, versions.DESCRIBE_GROUPS, body, read)
        for name, outcome in outcomes.items():
            if not outcome.ok:
                raise AnsweredError(outcome.code, f"group {name}")
        return {name: found[name] for name in outcomes}

    async def delete(self, groups: Iterable[str]) -> dict[str, Outcome]:
        """Delete groups without members, with their offsets; return the outcomes by name."""
        return await self._coordinators.call(
            groups,
            versions.DELETE_GROUPS,
            lambda some: request(versions.DELETE_GROUPS, groups_names=some),
            lambda node, response: {
                answer.group_id: Outcome(error_code(answer.error_code))
                for answer in response.results
            },
        )

    async def offsets(
        self, group: str, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of these partitions (None: all partitions). Raises KafkaError."""

        wanted = None if partitions is None else several(TopicPartition, partitions)

        async def attempt(
            coordinator: CoordinatorClient,
        ) -> dict[TopicPartition, OffsetAndMetadata]:
            body = fetch_request(group, wanted)
            return read_committed(await coordinator.call(versions.OFFSET_FETCH, body))

        return await self._with_coordinator(group, attempt)

    async def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int | OffsetAndMetadata]
    ) -> dict[TopicPartition, Outcome]:
        """Commit offsets for a group without members; return the outcomes by partition.

        UNKNOWN_MEMBER_ID means that the group has members. Raises KafkaError.
        """
        if not offsets:
            return {}
        wanted = {
            tp: OffsetAndMetadata(at) if isinstance(at, int) else at for tp, at in offsets.items()
        }
        body = commit_request(group, wanted)

        async def attempt(coordinator: CoordinatorClient) -> dict[TopicPartition, Outcome]:
            response = await coordinator.call(versions.OFFSET_COMMIT, body)
            return _outcomes(partition_codes(response))

        return await self._with_coordinator(group, attempt)

    async def delete_offsets(
        self, group: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, Outcome]:
        """Delete committed offsets; return the outcomes by partition.

        GROUP_SUBSCRIBED_TO_TOPIC means that a member reads the topic. Raises KafkaError with the code of the
        group, such as GROUP_ID_NOT_FOUND.
        """

        wanted = several(TopicPartition, partitions)

        async def attempt(coordinator: CoordinatorClient) -> dict[TopicPartition, Outcome]:
            body = delete_request(group, wanted)
            response = await coordinator.call(versions.OFFSET_DELETE, body)
            code = error_code(response.error_code)
            if code is not ErrorCode.NONE:
                raise AnsweredError(code, f"group {group}")
            return _outcomes(partition_codes(response))

        return await self._with_coordinator(group, attempt)

    async def _with_coordinator(
        self, group: str, attempt: Callable[[CoordinatorClient], Awaitable[T]]
    ) -> T:
        """Call `attempt` with the coordinator of a group; return the result.

        The call is repeated while the coordinator moves to another broker, or loads the group.
        """
        coordinator = CoordinatorClient(group, self._network, self._metadata, self._timeout_ms)

        async def again() -> T:
            try:
                return await attempt(coordinator)
            except KafkaError:
                coordinator.forget()
                raise

        return await self._retries(again, f"the coordinator of group {group}")


def _listings(answer: Any) -> list[GroupListing]:
    """Return the groups of consumers in a ListGroups response."""
    found = (
        GroupListing(group.group_id, group.protocol_type, group.group_state)
        for group in answer.groups
    )
    return sorted(group for group in found if group.protocol_type in (PROTOCOL_TYPE, ""))


def _description(group: Any, node: Node) -> GroupDescription:
    is_consumer = group.protocol_type == PROTOCOL_TYPE
    members = tuple(
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _partitions(member.member_assignment) if is_consumer else (),
        )
        for member in group.members
    )
    return GroupDescription(
        group.group_id, group.group_state, group.protocol_type, group.protocol_data, node, members
    )


def _partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions in a member's assignment; () if the bytes are not in the format of consumers."""
    try:
        return tuple(sorted(decode_assignment(assignment).partitions))
    except ProtocolViolation:
        return ()


def _outcomes(codes: Mapping[TopicPartition, ErrorCode]) -> dict[TopicPartition, Outcome]:
    """Convert the error codes of partitions to outcomes.

    Raises KafkaError if a code means that the coordinator has moved, is not available, or is still loading.
    """
    for tp, code in codes.items():
        if code in MOVED:
            raise AnsweredError(code, str(tp))
    return {tp: Outcome(code) for tp, code in codes.items()}


class CoordinatorClient:
    """A client of the broker that coordinates one group."""

    def __init__(
        self, group: str, network: Network, metadata: Metadata, request_timeout_ms: int
    ) -> None:
        self.group = group
        self._network = network
        self._metadata = metadata
        self._timeout_ms = request_timeout_ms
        self._node: Node | None = None

    def forget(self) -> None:
        """Forget the coordinator, so that the next request finds it again."""
        self._node = None

    async def node(self) -> Node:
        """Return the group's coordinator. Raises KafkaError, for example COORDINATOR_NOT_AVAILABLE, and OSError."""
        if self._node is None:
            self._node = await self._find()
        return self._node

    async def call(self, api: int, body: Any) -> Any:
        """Send a request and return its response. Raises OSError, or KafkaError if no coordinator is found.

        After an OSError the next call finds the coordinator again.
        """
        node = await self.node()
        try:
            address = Address(node.host, node.port)
            return await self._network.call(address, api, self._timeout_ms, body)
        except OSError:
            self.forget()
            raise

    async def _find(self) -> Node:
        body = request(
            versions.FIND_COORDINATOR, key_type=GROUP.number, coordinator_keys=[self.group]
        )
        address = await self._metadata.any_address()
        api = versions.FIND_COORDINATOR
        response = await self._network.call(address, api, self._timeout_ms, body)
        return read_coordinator(response.coordinators[0])


PROTOCOL_TYPE: Final = "consumer"
"""The protocol type of consumers in JoinGroup; Kafka Connect, for example, uses another type."""
_VERSION_BYTES: Final = 2


class Assignment(NamedTuple):
    """The partitions of one member. `user_data` belongs to the assignor."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


def decode_assignment(data: bytes) -> Assignment:
    """Return the assignment in `data`, of any version. Empty `data` means no partitions.

    Raises ProtocolViolation.
    """
    if not data:
        return Assignment(())
    assignment = record("ConsumerProtocolAssignment")
    found = decode(assignment, assignment.versions.low, data, _VERSION_BYTES, len(data))
    partitions = tuple(
        TopicPartition(topic.topic, number)
        for topic in found.assigned_partitions
        for number in topic.partitions
    )
    return Assignment(partitions, found.user_data)
