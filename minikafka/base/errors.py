"""Kafka's error codes, and the exceptions that minikafka raises.

On the per-batch path, functions return error codes as plain integers. On the control plane, they raise
exceptions.
"""

from __future__ import annotations

import errno
from enum import IntEnum
from typing import Final

_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
"""Errors of an open when the limit of this process, or of the machine, is reached."""


class ErrorCode(IntEnum):
    """Kafka's error codes under their Kafka names; `retriable` is the same as in the Java client."""

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
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
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
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    MISMATCHED_ENDPOINT_TYPE = 114
    TRANSACTION_ABORTABLE = 120

    @property
    def retriable(self) -> bool:
        """True if a client may send the same request again (KIP-4)."""
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
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
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
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


def code_name(code: int | str) -> str:
    """Return Kafka's name of an error code, given as a number or as digits. Return anything else as text."""
    try:
        return ErrorCode(int(code)).name
    except ValueError:
        return str(code)


class MinikafkaError(Exception):
    """Base class of expected errors; the command line prints their text without a traceback.

    `hint`: a command that helps; only the command line prints it. `exit_code`: the exit code of a command that
    fails with this error.
    """

    hint = ""
    exit_code = 1


class KafkaError(MinikafkaError):
    """A Kafka error code as an exception, with a text for people."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(code, detail)
        self.code = code
        self.detail = detail

    @property
    def reason(self) -> str:
        """The text without the code; "" if there is none."""
        return self.detail

    def __str__(self) -> str:
        return f"{self.code.name}: {self.reason}" if self.reason else self.code.name


class ConfigError(MinikafkaError):
    """An invalid configuration; the text names the key and the fix."""


class ClusterLost(ConfigError):
    """ZooKeeper does not have the cluster of the log directories: its data were lost, or it is another ZooKeeper."""


class DirectoryInUse(MinikafkaError):
    """Another process uses the data directory."""


class CorruptBatch(MinikafkaError):
    """The bytes of a record batch contradict its header."""


class OffsetGap(CorruptBatch):
    """Valid batches that begin above the expected offset, in a log that was never compacted."""

    def __init__(self, detail: str, expected: int, found: int) -> None:
        super().__init__(detail)
        self.expected = expected
        self.found = found


class ProtocolViolation(MinikafkaError):
    """A peer sent bytes that violate Kafka's protocol. The connection to the peer is closed."""


class StorageFailed(MinikafkaError):
    """The operating system refused a file operation; the log directory goes offline (S37).

    `lacks_descriptors`: the file was not opened, because no file descriptor was free. The disk works, so the log
    directory stays online, and the operation is tried again later.
    """

    def __init__(self, path: str, cause: OSError) -> None:
        self.reason = str(cause.strerror or cause)
        super().__init__(f"{path}: {self.reason}")
        self.path = path
        self.cause = cause
        self.lacks_descriptors = cause.errno in _NO_DESCRIPTOR

    def for_good(self, when: str) -> StorageFailed:
        """Return this error for an operation that must not be tried again, because it failed halfway.

        `when`: a phrase that says at which point it failed.
        """
        if not self.lacks_descriptors:
            return self
        return StorageFailed(self.path, OSError(errno.EIO, f"{self.reason} {when}"))


class CleaningFailed(MinikafkaError):
    """A log cannot be compacted; the text says why."""


class RecordsGone(MinikafkaError):
    """The records of a response that is being sent can no longer be read; the client's connection is closed."""


class IllegalTransition(MinikafkaError):
    """A state machine was asked for a change of state that its transition table does not allow."""


class CoordinationError(MinikafkaError):
    """Base class of the errors of the service that stores the cluster's state, which is ZooKeeper."""


class NotConnected(CoordinationError):
    """The request was never sent, so it was not applied."""


class ZooKeeperLoginRefused(CoordinationError):
    """ZooKeeper has refused the user or the password. The text names the configuration key, and no password."""


class OutcomeUnknown(CoordinationError):
    """The request was sent but got no response: the caller must read the nodes to learn if it was applied."""


class StaleSession(CoordinationError):
    """The session of the given generation has ended, and its ephemeral nodes are deleted."""


class ControllerMoved(CoordinationError):
    """The check of the controller epoch failed: another broker is the controller."""


class FollowerStateChangeQueueFull(CoordinationError):
    """The queue of a broker is full of requests that cannot be dropped; the sender retries later."""


class TooLarge(CoordinationError):
    """The request exceeds ZooKeeper's size limit and was not sent."""


class Closed(CoordinationError):
    """The method was called after close()."""


class ServerVerdict(CoordinationError):
    """Base class of definite refusals by ZooKeeper: nothing was applied."""


class NoNode(ServerVerdict):
    """The node, or the parent of a node to create, does not exist."""


class NodeExists(ServerVerdict):
    """The node to create already exists."""


class BadVersion(ServerVerdict):
    """The node has a version other than the expected one."""


class NotEmpty(ServerVerdict):
    """The node to delete has children."""


class NoChildrenForEphemerals(ServerVerdict):
    """An ephemeral node cannot have children."""


class NoAuth(ServerVerdict):
    """The ACL refuses this session."""


class InvalidAcl(ServerVerdict):
    """The given ACL is invalid."""


class BadArguments(ServerVerdict):
    """ZooKeeper rejected the request as malformed."""


class ServerError(ServerVerdict):
    """ZooKeeper returned a definite error code that has no exception class of its own."""

    def __init__(self, code: int) -> None:
        super().__init__(f"ZooKeeper error {code}")
        self.code = code


class MultiFailed(ServerVerdict):
    """ZooKeeper refused a multi as a whole; `index` and `error` name the operation that failed."""

    def __init__(self, index: int, error: ServerVerdict) -> None:
        super().__init__(f"operation {index}: {type(error).__name__} {error}")
        self.index = index
        self.error = error
