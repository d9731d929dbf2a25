"""The fetch sessions of this broker's clients (KIP-227): those of followers, one for each of their connections."""

from __future__ import annotations

from collections.abc import Callable

from minikafka.base.model import BrokerId
from minikafka.replication.partition import Partition
from minikafka.replication.progress import FollowerProgress
from minikafka.replication.purgatory import Purgatory
from minikafka.replication.sessions import Responder, Session


class FetchSessions:
    """All fetch sessions.

    `lookup(topic, partition)` finds hosted partitions, `expand(partition, progress)` proposes a caught-up follower for
    the ISR.
    """

    def __init__(
        self,
        purgatory: Purgatory,
        lookup: Callable[[bytes, int], Partition | None],
        expand: Callable[[Partition, FollowerProgress], None],
    ) -> None:
        self._purgatory = purgatory
        self._lookup = lookup
        self._expand = expand
        self._of_followers: dict[int, Session] = {}
        self._last_id = 0

    def open(self, broker_id: BrokerId, responder: Responder) -> Session:
        """Open a session for the connection of one follower."""
        self._last_id += 1
        session = Session(
            self._last_id, broker_id, self._purgatory, self._lookup, responder, self._expand
        )
        self._of_followers[session.id] = session
        return session

    def close(self, session: Session) -> None:
        """Close the session of a follower that has disconnected or opens another session."""
        session.close()
        self._purgatory.sessions.pop(session, None)
        self._of_followers.pop(session.id, None)

    def expire(self, now: int) -> None:
        """Answer the parked fetches of followers whose deadline has passed; called periodically."""
        for session in tuple(self._of_followers.values()):
            session.expire(now)
