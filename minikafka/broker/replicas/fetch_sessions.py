"""The fetch sessions of this broker (KIP-227): one session per follower connection, and the consumers' sessions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from minikafka.base.config import BrokerConfig
from minikafka.base.model import BrokerId
from minikafka.base.ports import Rng
from minikafka.storage.replication.consumer_sessions import FetchSessionCache
from minikafka.storage.replication.partition import Partition
from minikafka.storage.replication.progress import FollowerProgress
from minikafka.storage.replication.purgatory import Purgatory
from minikafka.storage.replication.sessions import FollowerSession, Responder


class FetchSessions:
    """All fetch sessions of this broker.

    The cache `consumers` holds the sessions of consumers. A follower's session also uses one slot of this cache.
    `lookup(topic, partition)` returns a hosted partition. `expand(partition, progress)` proposes a caught-up
    follower for the ISR.
    """

    def __init__(
        self,
        purgatory: Purgatory,
        lookup: Callable[[bytes, int], Partition | None],
        expand: Callable[[Partition, FollowerProgress], None],
        config: BrokerConfig,
        rng: Rng,
    ) -> None:
        slots = config.max_incremental_fetch_session_cache_slots
        self.consumers = FetchSessionCache(slots, partial(_random_id, rng))
        self._purgatory = purgatory
        self._lookup = lookup
        self._expand = expand
        self._of_followers: dict[int, FollowerSession] = {}
        self._last_id = 0

    def open(self, broker_id: BrokerId, responder: Responder, now: int) -> FollowerSession:
        """Open a session for the connection of one follower."""
        self.consumers.add_follower(now)
        self._last_id += 1
        session = FollowerSession(
            self._last_id, broker_id, self._purgatory, self._lookup, responder, self._expand
        )
        self._of_followers[session.id] = session
        return session

    def close(self, session: FollowerSession) -> None:
        """Close the session of a follower that has disconnected or opens a new session."""
        session.close()
        self._purgatory.sessions.pop(session, None)
        if self._of_followers.pop(session.id, None) is not None:
            self.consumers.remove_follower()

    def expire(self, now: int) -> None:
        """Answer the waiting follower fetches whose deadline has passed. Called periodically."""
        for session in tuple(self._of_followers.values()):
            session.expire(now)

    def partition_count(self) -> int:
        """Return the number of partitions in all sessions."""
        of_followers = (
            len(items) for one in self._of_followers.values() for items in one.items.values()
        )
        return self.consumers.partition_count() + sum(of_followers)


def _random_id(rng: Rng) -> int:
    """Return a random positive int32."""
    return (int.from_bytes(rng.bytes(4), "big") & 0x7FFFFFFF) or 1
