"""The refusal of transactional ids, because transactions are not supported yet.

InitProducerId with a transactional id and FindCoordinator of type 1 are answered with INVALID_REQUEST.
Clients built on librdkafka get TRANSACTIONAL_ID_AUTHORIZATION_FAILED instead. The error code is chosen so that a
producer fails at once instead of retrying.
Measured time from `init_transactions`, or the client's equivalent, until an error:

| client | INVALID_REQUEST | TRANSACTIONAL_ID_AUTHORIZATION_FAILED |
|---|---|---|
| confluent-kafka 2.16.1 (librdkafka 2.16.0) | retries until its timeout, or forever if it has none | 0.1 s |
| Java 3.9.1 | 0.5 s | |
| kafka-python 3.0.12 | 0.4 s | |
| aiokafka 0.14.0 (sends no software name) | 0.1 s | 0.1 s |
| kafkajs 2.2.4 (sends no software name) | 0.1 s | 0.1 s |
| franz-go 1.18.1 | 0.1 s | 0.1 s |
| sarama 1.61.1 | 5.2 s | 5.2 s |

librdkafka gives up only after errors that it considers permanent, and INVALID_REQUEST is not among them.
Sarama retries any error 50 times.
"""

from __future__ import annotations

import logging
from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.base.ports import Clock

logger = logging.getLogger(__name__)

REFUSAL: Final = "transactions are not supported yet"
"""The error message, for responses that have an error message field."""
_LIBRDKAFKA: Final = "rdkafka"
"""Part of the software name or version that every known client built on librdkafka sends. librdkafka has sent
name and version since its first release with transactions. Wrappers append "rdkafka" and librdkafka's version
to their own version: "2.16.1-rdkafka-2.16.0"."""


def refusal_code(software: str) -> ErrorCode:
    """Return the error code that makes a client with this software (name and version) fail at once."""
    if _LIBRDKAFKA in software:
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_REQUEST


_KNOWN_MAX: Final = 1_000
"""Number of clients that are remembered, so that each is logged once."""
_LINES_MAX: Final = 10
_MINUTE_MS: Final = 60_000
_SHOWN: Final = 100
"""Number of characters of an id that are logged."""


class TransactionalClients:
    """The log lines about clients whose transactional ids this broker has refused.

    Each pair of client id and transactional id gets one line, however often the client tries again. At most
    `_LINES_MAX` lines are written per minute; the next line then contains the number of clients left out.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: set[tuple[str, str]] = set()
        self._minute_began: int | None = None
        self._lines = 0
        self._left_out = 0

    def note(self, transactional_id: str, client_id: str | None, peer: str) -> None:
        """Note a refused request; log it if it is the first one of this client with this transactional id."""
        key = ((client_id or "")[:_SHOWN], transactional_id[:_SHOWN])
        if key in self._known:
            return
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known.add(key)
        now = self._clock.now()
        if self._minute_began is None or now - self._minute_began >= _MINUTE_MS:
            self._minute_began, self._lines = now, 0
        if self._lines >= _LINES_MAX:
            self._left_out += 1
            return
        self._lines += 1
        more = f" (clients without a line of their own: {self._left_out})" if self._left_out else ""
        self._left_out = 0
        logger.warning(
            "refused the transactional.id %a of client %a at %s: %s; remove transactional.id from the settings of "
            "the producer, which may still be idempotent%s",
            key[1],
            key[0],
            peer,
            REFUSAL,
            more,
        )
