"""Types of the cluster as immutable values: brokers, partitions, assignments, controller requests.

Invariant: a value never changes after its creation, so the controller, the request queues and the
brokers may share it. The per-batch path creates no objects of these types.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from minikafka.base.endpoints import Endpoint
from minikafka.base.errors import ErrorCode
from minikafka.base.protocol_versions import UNVERSIONED, Versions

BrokerId: TypeAlias = int
Epoch: TypeAlias = int

NO_LEADER: Final = -1
"""Leader id of a partition without a leader (Kafka's `NoLeader`)."""
LEADER_DURING_DELETE: Final = -2
"""Leader id sent to clients while the topic is being deleted (R64)."""
EPOCH_DURING_DELETE: Final = -2
"""Leader epoch of a StopReplica that deletes a topic's replica (R8)."""
NO_EPOCH: Final = -1
"""Unknown leader epoch."""


def version_4_uuid(drawn: bytes) -> bytes:
    """Return the 16 random bytes with the version bits set as in a random UUID (version 4)."""
    uuid = bytearray(drawn)
    uuid[6] = uuid[6] & 0x0F | 0x40
    uuid[8] = uuid[8] & 0x3F | 0x80
    return bytes(uuid)


def topic_id_text(topic_id: bytes) -> str:
    """Return a topic id as Kafka prints it: 22 characters of URL-safe base64 without padding."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode()


class TopicPartition(NamedTuple):
    """One partition of one topic; printed as Kafka does, `topic-0`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Node(NamedTuple):
    """A broker as clients see it: its address on one listener."""

    id: BrokerId
    host: str
    port: int
    rack: str | None


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker (`/brokers/ids/N`). `epoch` is the czxid of the registration (R5).

    `versions`: the versions of the protocol between brokers that it has.
    """

    id: BrokerId
    endpoints: tuple[Endpoint, ...]
    epoch: int = -1
    rack: str | None = None
    versions: Versions = (UNVERSIONED,)

    def endpoint(self, listener: str) -> Endpoint | None:
        """Return the endpoint that the broker registered for this listener name, None if there is none."""
        return next((item for item in self.endpoints if item.name == listener), None)

    def node(self, listener: str) -> Node | None:
        """Return the broker as clients of this listener see it, None if the broker does not have the listener."""
        found = self.endpoint(listener)
        return None if found is None else Node(self.id, found.host, found.port, self.rack)


@dataclass(frozen=True, slots=True)
class ReplicaAssignment:
    """Ordered replicas of a partition; the first replica is the preferred replica.

    `adding` and `removing`: the replicas that a reassignment in progress adds and removes (KIP-455).
    """

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()

    @property
    def origin(self) -> tuple[BrokerId, ...]:
        """The replicas before the reassignment (R55)."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas after the reassignment (R55)."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def is_being_reassigned(self) -> bool:
        """True if replicas are being added or removed."""
        return bool(self.adding or self.removing)

    def reassigned_to(self, target: tuple[BrokerId, ...]) -> ReplicaAssignment:
        """Return the assignment during a reassignment from `origin` to `target`, target replicas
        first (R55).
        """
        origin = self.origin
        return ReplicaAssignment(
            replicas=(*target, *(replica for replica in origin if replica not in target)),
            adding=tuple(replica for replica in target if replica not in origin),
            removing=tuple(replica for replica in origin if replica not in target),
        )


@dataclass(frozen=True, slots=True)
class RequestedTopic:
    """A topic to create, with numbers of partitions and replicas or with a manual assignment.

    The number -1 stands for the broker's default (KIP-464). `assignment` has pairs of (partition, replicas).
    """

    name: str
    partitions: int = -1
    replication_factor: int = -1
    assignment: tuple[tuple[int, tuple[BrokerId, ...]], ...] = ()
    configs: Mapping[str, str | None] = field(default_factory=dict)


class PartitionResult(NamedTuple):
    """The result of an administrator's request for one partition; the message is for a person."""

    code: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """The stored state of a partition, and the version under which it is stored (A10).

    In ZooKeeper this is the content of `/brokers/topics/T/partitions/P/state`, and the version of that node.
    """

    leader: BrokerId
    leader_epoch: Epoch
    isr: tuple[BrokerId, ...]
    controller_epoch: Epoch
    state_version: int


class PartitionState(NamedTuple):
    """One partition in a LeaderAndIsr or UpdateMetadata request, which may have 100,000 partitions."""

    tp: TopicPartition
    leader: BrokerId
    leader_epoch: Epoch
    isr: tuple[BrokerId, ...]
    state_version: int
    controller_epoch: Epoch
    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    offline: tuple[BrokerId, ...] = ()
    """UpdateMetadata only: replicas whose broker is dead or shutting down, or whose log directory failed."""
    is_new: bool = False
    """LeaderAndIsr only: the replica may be created in any good log directory (R67)."""


@dataclass(frozen=True, slots=True)
class StopReplicaPartition:
    """One replica to stop; `leader_epoch` may be `EPOCH_DURING_DELETE` or `NO_EPOCH` (R8)."""

    tp: TopicPartition
    leader_epoch: Epoch
    delete: bool


@dataclass(frozen=True, slots=True)
class LeaderAndIsrRequest:
    """Request of the controller to become leader or follower (J1). `topic_ids`: (topic, 16-byte id)
    pairs.
    """

    controller_id: BrokerId
    controller_epoch: Epoch
    broker_epoch: int
    partitions: tuple[PartitionState, ...]
    live_leaders: tuple[Broker, ...]
    topic_ids: tuple[tuple[str, bytes], ...]
    cause: str = ""
    """Id of the controller event that caused the request, for the ledger."""


@dataclass(frozen=True, slots=True)
class UpdateMetadataRequest:
    """Request from the controller with all live brokers and the partitions that changed (J3)."""

    controller_id: BrokerId
    controller_epoch: Epoch
    broker_epoch: int
    partitions: tuple[PartitionState, ...]
    live_brokers: tuple[Broker, ...]
    topic_ids: tuple[tuple[str, bytes], ...]
    cause: str = ""
    suspects: tuple[BrokerId, ...] = ()
    """Live brokers that refused a connection of the controller, so that they have probably died."""


class ClusterMetadata(NamedTuple):
    """All live brokers and the partitions that changed, from a source other than an UpdateMetadata request."""

    controller_id: BrokerId
    partitions: tuple[PartitionState, ...]
    live_brokers: tuple[Broker, ...]
    topic_ids: tuple[tuple[str, bytes], ...]
    suspects: tuple[BrokerId, ...] = ()
    """Brokers whose registration has ended."""


MetadataUpdate: TypeAlias = ClusterMetadata | UpdateMetadataRequest


@dataclass(frozen=True, slots=True)
class StopReplicaRequest:
    """Request of the controller to stop, and optionally delete, these replicas (J2)."""

    controller_id: BrokerId
    controller_epoch: Epoch
    broker_epoch: int
    partitions: tuple[StopReplicaPartition, ...]
    cause: str = ""


ControllerRequest: TypeAlias = LeaderAndIsrRequest | UpdateMetadataRequest | StopReplicaRequest


@dataclass(frozen=True, slots=True)
class ControllerResponse:
    """A broker's response: an error code for the whole request, and the error codes of single partitions."""

    error: int
    partitions: tuple[tuple[TopicPartition, int], ...] = ()
