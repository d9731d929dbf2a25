"""The errors of the console's API: what a request asks for and cannot have, each with its HTTP status."""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode, KafkaError, MinikafkaError

_STATUS: Final = {
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: 403,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: 403,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: 403,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.GROUP_ID_NOT_FOUND: 404,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: 404,
    ErrorCode.OFFSET_OUT_OF_RANGE: 400,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 400,
}
_UNAVAILABLE: Final = 503


class RequestRefused(MinikafkaError):
    """A request that the console refuses. `status`: of HTTP. `hint`: what helps, "" if nothing is known."""

    def __init__(self, status: int, text: str, hint: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.hint = hint


def unknown(what: str, hint: str = "") -> RequestRefused:
    """Return the error for something that does not exist."""
    return RequestRefused(404, f"there is no {what}", hint)


def invalid(text: str, hint: str = "") -> RequestRefused:
    """Return the error for a wrong argument."""
    return RequestRefused(400, text, hint)


def status_of(error: Exception) -> int:
    """Return the HTTP status for an error: 503 if another attempt may succeed."""
    if isinstance(error, RequestRefused):
        return error.status
    if isinstance(error, KafkaError):
        return _STATUS.get(error.code, _UNAVAILABLE)
    return _UNAVAILABLE
