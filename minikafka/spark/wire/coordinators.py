"""Requests to the coordinator of a group or of a transactional id, which are sent again until they are answered.

Every request of a transaction may be sent again: the coordinator answers a repeated request like the first one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

from minikafka.base.errors import ErrorCode
from minikafka.base.known_cluster import Address
from minikafka.spark.wire.deadline import Deadline
from minikafka.spark.wire.leaders import LeaderConnections, Unreachable, raise_if_final
from minikafka.spark.wire.transactions import (
    FIND_COORDINATOR,
    OF_TRANSACTIONS,
    find_coordinator_request,
    parse_find_coordinator,
)

logger = logging.getLogger(__name__)

_MOVED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Answered(Protocol):
    """An answer with an error code."""

    @property
    def error(self) -> int:
        """The error code."""


Answer = TypeVar("Answer", bound=Answered)


class Coordinator:
    """The coordinator of one group or one transactional id. `kind`: `OF_GROUPS` or `OF_TRANSACTIONS`.

    `patience_s` limits the time in which a request must be answered.
    """

    def __init__(self, leaders: LeaderConnections, kind: int, key: str, patience_s: float) -> None:
        self._leaders = leaders
        self._kind = kind
        self._key = key
        self._patience_s = patience_s
        self._address: Address | None = None

    def call(
        self, api: tuple[int, int], body: bytes, parse: Callable[[memoryview], Answer]
    ) -> Answer:
        """Return the answer to a request, after it has no error.

        Raises `KafkaError` for an error that a retry cannot fix, and `Unreachable` if the time is over.
        """
        deadline = Deadline(self._patience_s)
        while True:
            answer = self._ask(api, body, parse)
            if answer is not None and not answer.error:
                return answer
            if answer is not None:
                raise_if_final(answer.error, str(self), api, self._key)
                logger.info("%s: error code %d", self, answer.error)
                if answer.error in _MOVED:
                    self._address = None
            if not deadline.wait_to_retry():
                if answer is not None:
                    raise Unreachable(f"{self} refuses: {ErrorCode(answer.error).name}")
                raise Unreachable(f"{self} does not answer")

    def _ask(
        self, api: tuple[int, int], body: bytes, parse: Callable[[memoryview], Answer]
    ) -> Answer | None:
        """Return the answer to one request; None if there is none."""
        try:
            address = self._address = self._address or self._find()
        except Unreachable as error:
            logger.info("%s", error)
            return None
        if address is None:
            return None
        try:
            return parse(self._leaders.connection(address).call(api, body))
        except OSError as error:
            logger.info("Lost %s at %s:%d: %s", self, *address, error)
            self._leaders.drop(address)
            self._address = None
            return None

    def _find(self) -> Address | None:
        found = self._leaders.call_any(
            FIND_COORDINATOR,
            find_coordinator_request(self._key, self._kind),
            parse_find_coordinator,
        )
        raise_if_final(found.error, str(self), FIND_COORDINATOR, self._key)
        return None if found.error else found.address

    def __str__(self) -> str:
        name = "transactional id" if self._kind == OF_TRANSACTIONS else "group"
        return f"the coordinator of {name} {self._key}"
