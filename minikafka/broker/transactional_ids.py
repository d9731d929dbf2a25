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

from typing import Final

from minikafka.base.errors import ErrorCode

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
