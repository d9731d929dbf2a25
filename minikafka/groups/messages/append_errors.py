"""The errors returned to clients when an append to `__consumer_offsets` fails, as in Kafka's GroupMetadataManager."""

from __future__ import annotations

from minikafka.base.coordinators import ASSIGNMENT_ERRORS, OFFSET_ERRORS
from minikafka.base.coordinators import MAY_BE_APPENDED as MAY_BE_APPENDED
from minikafka.base.errors import ErrorCode


def assignment_error(error: int) -> int:
    """Return the error for the clients after an append failed with `error`.

    The append contained the assignments of members, or the new id of a static member.
    """
    return ASSIGNMENT_ERRORS.get(error, error)


def fetch_error(error: int) -> int:
    """Return the error for a client whose OffsetFetch was not confirmed by an append. The client tries again."""
    is_replaced = offsets_error(error) == ErrorCode.NOT_COORDINATOR
    return ErrorCode.NOT_COORDINATOR if is_replaced else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def offsets_error(error: int) -> int:
    """Return the error for clients whose commit or removal of offsets failed with this error.

    It is the error of an append, or of the verification of a transaction.
    """
    return OFFSET_ERRORS.get(error, error)
