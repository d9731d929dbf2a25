"""Kafka's error codes, and the handful of exceptions minikafka raises.

On the per-batch path codes are plain ints that are returned; exceptions belong to the control plane.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    """Kafka's protocol error numbers by their Kafka names; `retriable` as the Java client has it."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    NETWORK_EXCEPTION = 13
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    SECURITY_DISABLED = 54
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    REASSIGNMENT_IN_PROGRESS = 60
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    INVALID_RECORD = 87
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    MISMATCHED_ENDPOINT_TYPE = 114

    @property
    def retriable(self) -> bool:
        """Whether a client may send the same request again and hope (KIP-4 table of the protocol guide)."""
        return self in _RETRIABLE


_RETRIABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class MinikafkaError(Exception):
    """Base of everything minikafka raises on purpose; the command line prints its text without a traceback."""


class KafkaError(MinikafkaError):
    """A Kafka error code that ends a control-plane request."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(f"{code.name}: {detail}" if detail else code.name)
        self.code = code
        self.detail = detail


class ConfigError(MinikafkaError):
    """A configuration that cannot be used; the text names the key and the fix."""


class CorruptBatch(MinikafkaError):
    """Record bytes that do not hold what their header says."""


class OffsetGap(CorruptBatch):
    """Sound batches that begin above the expected offset, for a log that was never compacted."""

    def __init__(self, detail: str, expected: int, found: int) -> None:
        super().__init__(detail)
        self.expected = expected
        self.found = found


class ProtocolViolation(MinikafkaError):
    """A peer sent bytes that are not Kafka; its connection is closed."""


class StorageFailed(MinikafkaError):
    """The operating system refused a file operation; the log directory goes offline (R67, S37)."""

    def __init__(self, path: str, cause: OSError) -> None:
        super().__init__(f"{path}: {cause.strerror or cause}")
        self.path = path
        self.cause = cause


class IllegalTransition(MinikafkaError):
    """A state machine was asked for a move its table does not hold."""


class CoordinationError(MinikafkaError):
    """Base of what the Coordination port raises."""


class NotConnected(CoordinationError):
    """Never written to the socket: not applied."""


class OutcomeUnknown(CoordinationError):
    """Written, no answer: may be applied. Read back before acting."""


class StaleSession(CoordinationError):
    """The session of this generation is gone, with its ephemeral nodes."""


class ControllerMoved(CoordinationError):
    """The check on the controller epoch failed: another controller rules."""


class TooLarge(CoordinationError):
    """A request over ZooKeeper's limit; refused before it was sent."""


class Closed(CoordinationError):
    """Called after close()."""


class ServerVerdict(CoordinationError):
    """Base of ZooKeeper's definite refusals: nothing was applied."""


class NoNode(ServerVerdict):
    """The node, or the parent of a node to create, is not there."""


class NodeExists(ServerVerdict):
    """The node to create is already there."""


class BadVersion(ServerVerdict):
    """The node is at another version than the one expected."""


class NotEmpty(ServerVerdict):
    """The node to delete has children."""


class NoChildrenForEphemerals(ServerVerdict):
    """An ephemeral node cannot have children."""


class NoAuth(ServerVerdict):
    """The ACL refuses this session."""


class InvalidAcl(ServerVerdict):
    """The ACL given is not one."""


class BadArguments(ServerVerdict):
    """ZooKeeper calls the request malformed."""


class ServerError(ServerVerdict):
    """Any other definite code of the server."""

    def __init__(self, code: int) -> None:
        super().__init__(f"ZooKeeper error {code}")
        self.code = code


class MultiFailed(ServerVerdict):
    """A multi was refused as a whole; `index` and `error` name the operation that did it."""

    def __init__(self, index: int, error: ServerVerdict) -> None:
        super().__init__(f"operation {index}: {type(error).__name__} {error}")
        self.index = index
        self.error = error
