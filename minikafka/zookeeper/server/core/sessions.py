"""Sessions and their expiry. Times are monotonic ms.

As in ZooKeeper, a session expires at the first tick after its timeout: sessions that expire at the same tick share
one bucket. Invariant: each session is in the bucket of its `expires`.
"""

from __future__ import annotations

from typing import Final

TICKS_MIN: Final = 2
TICKS_MAX: Final = 20


class Session:
    """One session. `connection`: the client's connection, None while the client is disconnected."""

    __slots__ = ("connection", "expires", "id", "timeout_ms")

    def __init__(self, id_: int, timeout_ms: int) -> None:
        self.id = id_
        self.timeout_ms = timeout_ms
        self.connection: object | None = None
        self.expires = 0


class Sessions:
    """All open sessions by id. `tick_ms`: ZooKeeper's tickTime. `first_id`: id of the first session opened here."""

    def __init__(self, tick_ms: int, first_id: int, timeout_max_ms: int | None = None) -> None:
        self.tick_ms = tick_ms
        self.timeout_min_ms = TICKS_MIN * tick_ms
        self.timeout_max_ms = timeout_max_ms or TICKS_MAX * tick_ms
        self.open: dict[int, Session] = {}
        self._buckets: dict[int, dict[int, None]] = {}
        self._next_id = first_id

    def next_id(self) -> int:
        """Return the id of a new session: above all ids that are or were open here."""
        id_ = self._next_id
        self._next_id += 1
        return id_

    def clamped(self, timeout_ms: int) -> int:
        """Return `timeout_ms` within the limits of the server."""
        return max(self.timeout_min_ms, min(self.timeout_max_ms, timeout_ms))

    def add(self, id_: int, timeout_ms: int) -> Session:
        """Open a session. It does not expire before the first `touch`."""
        session = self.open[id_] = Session(id_, timeout_ms)
        # Ephemeral nodes name their session by its id: no id may come back, not even after a restart.
        self._next_id = max(self._next_id, id_ + 1)
        return session

    def touch(self, session: Session, now: int) -> None:
        """Move the expiry of a session to a full timeout from now."""
        # In the bucket of an end, a session that is over would be closed a second time.
        assert self.open.get(session.id) is session, session.id
        self._move(session, self._full_timeout(session, now))

    def postpone(self, ms: int, now: int) -> None:
        """Move the expiry of all sessions by the whole ticks in `ms`, but not beyond a full timeout from now.

        The server did not run for this time, so it has read no sign of life. The rest, less than a tick, is shorter
        than the pause between the pings of a client and its timeout.
        """
        ticks = ms - ms % self.tick_ms
        for session in self.open.values():
            if session.expires:
                full = self._full_timeout(session, now)
                self._move(session, min(full, session.expires + ticks))

    def _full_timeout(self, session: Session, now: int) -> int:
        return ((now + session.timeout_ms) // self.tick_ms + 1) * self.tick_ms

    def _move(self, session: Session, expires: int) -> None:
        if expires != session.expires:
            self._leave_bucket(session)
            session.expires = expires
            self._buckets.setdefault(expires, {})[session.id] = None

    def remove(self, id_: int) -> Session | None:
        """Close a session; return it, None if it is not open."""
        session = self.open.pop(id_, None)
        if session is not None:
            self._leave_bucket(session)
        return session

    def _leave_bucket(self, session: Session) -> None:
        bucket = self._buckets.get(session.expires)
        if bucket is not None:
            bucket.pop(session.id, None)
            if not bucket:
                del self._buckets[session.expires]

    def expired(self, now: int) -> list[int]:
        """Return the ids of the sessions whose time is over, in the order of their expiry."""
        due = sorted(expires for expires in self._buckets if expires <= now)
        return [id_ for expires in due for id_ in self._buckets[expires]]

    def buckets(self) -> dict[int, tuple[int, ...]]:
        """Return expiry → ids of the sessions that expire then, for the four-letter word `dump`."""
        return {expires: tuple(ids) for expires, ids in sorted(self._buckets.items())}
