"""Two ZooKeeper servers get the same requests one by one, and must answer the same.

Compared are replies, errors, zxids, all fields of a Stat but the times, the watch events of each connection with
their order, and at the end the whole tree. Session ids differ between servers: the number of the session in the
sequence stands for its id.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from support.zookeeper import bytes as wire
from support.zookeeper.bytes import Event, Reply, Session, Wire
from support.zookeeper.sequences import REATTACH, REQUESTS, SESSIONS, Sequence, Step

TIMEOUT_MS = 30_000
WALK_AHEAD = 100


class Difference(NamedTuple):
    """Where two servers differ: at which step, and what each of them did."""

    step: str
    first: object
    second: object

    def __str__(self) -> str:
        return f"{self.step}\n  first:  {self.first}\n  second: {self.second}"


class Failure(NamedTuple):
    """The shortest part of a sequence after which two servers differ."""

    seed: int
    steps: list[Step]
    difference: Difference


class Counts:
    """What a comparison has done."""

    def __init__(self) -> None:
        self.sequences = self.requests = self.events = 0


class Side:
    """One server with the connections of one sequence. Its zxids count from the start of the sequence."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.connections: list[Wire] = []
        self.sessions: list[Session] = []
        self.owners: dict[int, str] = {}
        self.closings: set[int] = set()
        """The zxids of ends of sessions: the order of their events is open."""
        self.xids = itertools.count(1)
        self.base = self.zxid = 0
        for place in range(SESSIONS):
            self._open(place)
            if not place:
                self.zxid = self.connections[0].request(0, wire.PING).zxid
                self.base = self.zxid - 1

    def _open(self, place: int) -> None:
        """Open a session, which uses up a zxid, at this place of the lists."""
        connection = Wire(self.port)
        session = connection.connect(TIMEOUT_MS)
        self.owners[session.id] = f"session {len(self.owners)}"
        self.connections[place : place + 1] = [connection]
        self.sessions[place : place + 1] = [session]
        self.zxid += 1

    def start(self, step: Step) -> None:
        """Send a step's request."""
        if step.code is None:
            return
        record = step.record
        if step.code in (wire.SET_WATCHES, wire.SET_WATCHES2):
            back = wire.Cursor(record).unpack("!q")[0]
            record = wire.long(self.zxid - back) + record[8:]
        self.connections[step.session].send_request(next(self.xids), step.code, record)

    def finish(self, step: Step) -> object:
        """Return the outcome of a step: its reply, and the events that came before it."""
        if step.code is None:
            return self._reattach(step) if step.text == REATTACH else self._reopen(step)
        connection = self.connections[step.session]
        try:
            reply = connection.reply(step.code)
        except wire.Closed:
            return "closed", self._events(connection)
        if reply.zxid > 0:
            self.zxid = reply.zxid
        return self._plain(reply), self._events(connection)

    def _reattach(self, step: Step) -> object:
        old, session = self.connections[step.session], self.sessions[step.session]
        seen = self._drained(old)
        old.close()
        connection = self.connections[step.session] = Wire(self.port)
        back = connection.connect(TIMEOUT_MS, session, zxid=self.zxid)
        return seen, back == session

    def _reopen(self, step: Step) -> object:
        connection = self.connections[step.session]
        connection.send_request(next(self.xids), wire.CLOSE)
        reply = connection.reply(wire.CLOSE)
        self.closings.add(reply.zxid)
        outcome = self._plain(reply), self._events(connection), connection.rest()
        connection.close()
        self._open(step.session)
        return outcome

    def _drained(self, connection: Wire) -> object:
        connection.request(0, wire.PING)
        return self._events(connection)

    def _events(self, connection: Wire) -> list[object]:
        """Return the events of the connection since the last call. Events of the end of a session are sorted."""
        taken, connection.events = connection.events, []
        found: list[object] = []
        for zxid, group in itertools.groupby(taken, lambda event: event.zxid):
            events: Iterable[Event] = tuple(group)
            if zxid in self.closings:
                events = sorted(events)
            found += [event._replace(zxid=self._from_start(event.zxid)) for event in events]
        return found

    # ---- values that both servers must have in common

    def _plain(self, reply: Reply) -> Reply:
        return reply._replace(zxid=self._from_start(reply.zxid), body=self._value(reply.body))

    def _from_start(self, zxid: int) -> int:
        return zxid - self.base if zxid > self.base else min(zxid, 0)

    def _value(self, value: Any) -> Any:
        if type(value) is tuple and value and value[0] == "stat":
            _, czxid, mzxid, version, cversion, aversion, owner, size, count, pzxid = value
            zxids = (self._from_start(zxid) for zxid in (czxid, mzxid, pzxid))
            name = self.owners.get(owner, owner)
            return (*zxids, version, cversion, aversion, name, size, count)
        if type(value) in (tuple, list):
            return tuple(self._value(one) for one in value)
        return value

    # ---- the end of a sequence

    def finish_sequence(self, root: str) -> list[object]:
        """Return the events that are left, and the tree below `root`; then delete it, and end the sessions."""
        left: list[object] = [self._drained(connection) for connection in self.connections]
        nodes = list(self._walk(root))
        left += nodes
        paths = sorted((path for path, *_ in nodes), key=len, reverse=True)
        for path in paths:
            record = wire.text(path) + wire.integer(-1)
            self.connections[0].send_request(0, wire.DELETE, record)
        left += [(path, self._plain(self.connections[0].reply(wire.DELETE))) for path in paths]
        for connection in self.connections:
            connection.events.clear()
            left.append(self._from_start(connection.request(0, wire.CLOSE).zxid))
            connection.close()
        return left

    def _walk(self, root: str) -> Iterator[tuple[str, *tuple[object, ...]]]:
        """Yield the path, data, ACL, children and Stats of each node, level by level."""
        level = [root]
        while level:
            below = []
            for path, replies in zip(level, self._read_all(level), strict=True):
                yield path, *(self._plain(reply)._replace(xid=0) for reply in replies)
                names = replies[2].body[0] if not replies[2].error else ()
                below += [f"{path}/{name}" for name in names]
            level = below

    def _read_all(self, paths: list[str]) -> Iterator[tuple[Reply, ...]]:
        """Yield the replies to getData, getACL and getChildren2 of each path; they are sent without waiting."""
        connection = self.connections[0]
        reads = (wire.GET, b"\0"), (wire.GET_ACL, b""), (wire.CHILDREN2, b"\0")
        for some in _chunks(paths):
            for path in some:
                for code, tail in reads:
                    connection.send_request(1, code, wire.text(path) + tail)
            for _ in some:
                yield tuple(connection.reply(code) for code, _ in reads)

    def abandon(self) -> None:
        """End all sessions that are still open after a difference."""
        for connection in self.connections:
            with suppress(OSError):
                connection.send_request(0, wire.CLOSE)
                connection.rest()
            connection.close()


def _chunks(paths: list[str]) -> Iterator[list[str]]:
    for start in range(0, len(paths), WALK_AHEAD):
        yield paths[start : start + WALK_AHEAD]


class Comparison:
    """Compares the servers of two ports, which must be new: their zxids must be equal at the start."""

    def __init__(self, first: int, second: int) -> None:
        self.ports = first, second
        self.counts = Counts()
        self._roots = itertools.count(1)
        """Numbers for the roots of the sequences; none is used twice."""
        self._has_failed = False
        """After a difference, the zxids of the servers may have different distances from the start."""

    def run(self, seed: int, requests: int = REQUESTS) -> Difference | None:
        """Run the sequence of a seed; return the first difference."""
        return self._compare(lambda root: Sequence(seed, root).steps(requests))

    def smallest(self, seed: int, first: Difference, requests: int = REQUESTS) -> Failure:
        """Return the shortest part of a failing sequence that still fails.

        A sequence that does not fail a second time is returned whole, with its first difference.
        """
        kept = list(range(len(Sequence(seed, "/x").steps(requests))))
        found = self._compare(_chosen(seed, requests, kept))
        if found is None:
            return Failure(seed, _chosen(seed, requests, kept)("ROOT"), first)
        size = len(kept) // 2
        while size:
            for start in range(len(kept) - size, -1, -size):
                fewer = kept[:start] + kept[start + size :]
                difference = self._compare(_chosen(seed, requests, fewer))
                if difference is not None:
                    kept, found = fewer, difference
            size //= 2
        return Failure(seed, _chosen(seed, requests, kept)("ROOT"), found)

    def _compare(self, steps_of: Callable[[str], list[Step]]) -> Difference | None:
        root = f"/s{next(self._roots)}"
        sides = [Side(port) for port in self.ports]
        difference = self._run(sides, steps_of(root), root)
        zxids = [side.base for side in sides]
        if difference is None and not self._has_failed and zxids[0] != zxids[1]:
            difference = Difference("the zxid at the start of the sequence", *zxids)
        if difference is not None:
            self._has_failed = True
            for side in sides:
                side.abandon()
        self.counts.sequences += 1
        return difference

    def _run(self, sides: list[Side], steps: list[Step], root: str) -> Difference | None:
        for burst in bursts(steps):
            for side in sides:
                for step in burst:
                    side.start(step)
            for step in burst:
                outcomes = [side.finish(step) for side in sides]
                self.counts.requests += 1
                if outcomes[0] != outcomes[1]:
                    return Difference(f"session {step.session}: {step.text}", *outcomes)
                if step.code is not None:
                    self.counts.events += len(outcomes[0][1])  # type: ignore[index]
        for first, second in itertools.zip_longest(*(s.finish_sequence(root) for s in sides)):
            if first != second:
                return Difference("the tree at the end", first, second)
        return None


def bursts(steps: list[Step]) -> Iterator[list[Step]]:
    """Yield the steps in groups that are sent without waiting for replies: requests of one session.

    Apache ZooKeeper carries out an auth before requests that it has read earlier, and checks requests that it has
    read before the reply to a setACL against the old list. So these two end a group.
    """
    burst: list[Step] = []
    for step in steps:
        if burst and (step.code in (None, wire.AUTH) or burst[-1].session != step.session):
            yield burst
            burst = []
        burst.append(step)
        if step.code in (None, wire.AUTH, wire.SET_ACL):
            yield burst
            burst = []
    if burst:
        yield burst


def _chosen(seed: int, requests: int, places: list[int]) -> Callable[[str], list[Step]]:
    def steps(root: str) -> list[Step]:
        all_steps = Sequence(seed, root).steps(requests)
        return [all_steps[place] for place in places]

    return steps
