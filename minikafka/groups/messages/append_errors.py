"""The errors returned to clients when an append to `__consumer_offsets` fails, as in Kafka's GroupMetadataManager."""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode

_ALL: Final[dict[int, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
_ASSIGNMENT: Final[dict[int, ErrorCode]] = {
    **_ALL,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
_OFFSETS: Final[dict[int, ErrorCode]] = {
    **_ALL,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
}

MAY_BE_APPENDED: Final = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Append errors after which the records may be in the log, and may be committed later."""


def assignment_error(error: int) -> int:
    """Return the error for the clients after an append failed with `error`.

    The append contained the assignments of members, or the new id of a static member.
    """
    return _ASSIGNMENT.get(error, error)


def fetch_error(error: int) -> int:
    """Return the error for a client whose OffsetFetch was not confirmed by an append. The client tries again."""
    is_replaced = offsets_error(error) == ErrorCode.NOT_COORDINATOR
    return ErrorCode.NOT_COORDINATOR if is_replaced else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def offsets_error(error: int) -> int:
    """Return the error for clients whose commit or removal of offsets failed with this error.

    It is the error of an append, or of the verification of a transaction.
    """
    return _OFFSETS.get(error, error)
