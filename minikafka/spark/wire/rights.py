"""The right that a client lacks, from the request that a broker has refused: brokers send only an error code.

The rights are those of Kafka's authorizer, which grants Describe also with Read, Write, Delete and Alter.
"""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode

_CREATE_TOPICS: Final = 19
_FIND_COORDINATOR: Final = 10
_INIT_PRODUCER_ID: Final = 22
_PRODUCE: Final = 0
_ADD_PARTITIONS: Final = 24
_FETCH: Final = 1
_OFFSET_COMMIT: Final = 8
_TXN_OFFSET_COMMIT: Final = 28
_OFFSET_FETCH: Final = 9
"""API keys of requests."""

_OF_TOPIC: Final = {
    _PRODUCE: "Write",
    _ADD_PARTITIONS: "Write",
    _FETCH: "Read",
    _OFFSET_COMMIT: "Read",
    _TXN_OFFSET_COMMIT: "Read",
    _CREATE_TOPICS: "Create and Describe",
}
"""The right on a topic by API key. All other requests need Describe.

Metadata that creates topics counts as CreateTopics, and a broker does not say which of both rights is missing.
"""
_OF_GROUP: Final = dict.fromkeys((_FIND_COORDINATOR, _OFFSET_FETCH), "Describe")
"""The right on a group by API key. All other requests need Read."""


def missing_right(code: ErrorCode, api_key: int, name: str) -> str:
    """Return which right on a resource the client lacks, as a sentence; "" for an error of another kind.

    `name`: the name of the topic, group or transactional id.
    """
    match code:
        case ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return _lacks(_OF_TOPIC.get(api_key, "Describe"), f"topic {name}")
        case ErrorCode.GROUP_AUTHORIZATION_FAILED:
            return _lacks(_OF_GROUP.get(api_key, "Read"), f"group {name}")
        case ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            right = "Describe" if api_key == _FIND_COORDINATOR else "Write"
            return _lacks(right, f"transactional id {name}")
        case ErrorCode.CLUSTER_AUTHORIZATION_FAILED if api_key in (_INIT_PRODUCER_ID, _PRODUCE):
            return _lacks("IdempotentWrite", "the cluster, or Write on any topic")
    return ""


def _lacks(right: str, resource: str) -> str:
    word = "rights" if " and " in right else "right"
    return f"no ACL gives the user the {word} {right} on {resource}"
