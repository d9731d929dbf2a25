"""The rights of one fetch to the topics that it reads."""

from __future__ import annotations

from typing import Final

from minikafka.base.errors import ErrorCode
from minikafka.broker.clients.access import Verdicts
from minikafka.security.acls import CLUSTER_NAME
from minikafka.security.operations import CLUSTER, CLUSTER_ACTION, READ, TOPIC, need

READ_TOPIC: Final = need("Fetch", READ, TOPIC)
FOLLOW: Final = need("Fetch", CLUSTER_ACTION, CLUSTER)
CLUSTER_RESOURCE: Final = CLUSTER_NAME.encode()
DENIED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
"""The error of each partition that the client may not read, and of all partitions if it may not be a follower."""


class FetchRights:
    """The verdicts on the topics of one fetch. Each topic is decided, and logged, once per fetch.

    A fetch that has waited is decided again if the ACLs have changed meanwhile (in Kafka it is not).
    """

    __slots__ = ("_basis", "_is_of_follower", "_known", "_verdicts")

    def __init__(self, reads: Verdicts, followers: Verdicts, *, is_of_follower: bool) -> None:
        self._is_of_follower = is_of_follower
        self._verdicts = followers if is_of_follower else reads
        self._known: dict[bytes, bool] = {}
        self._basis = self._verdicts.basis

    def renew(self) -> None:
        """Forget the verdicts if they are no longer valid. Called before each evaluation of the fetch."""
        basis = self._verdicts.basis
        if basis != self._basis:
            self._basis = basis
            self._known.clear()

    def deny(self, topic: bytes | None) -> bool:
        """Return True if the client may not read the topic. None is an unknown topic, which gets another error."""
        if topic is None:
            return False
        name = CLUSTER_RESOURCE if self._is_of_follower else topic
        is_allowed = self._known.get(name)
        if is_allowed is None:
            is_allowed = self._known[name] = self._verdicts.allow(name)
        return not is_allowed
