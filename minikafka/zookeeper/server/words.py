"""The four-letter words: administrators' commands and their answers, in the formats of Apache ZooKeeper 3.9.

As there, `wchs` and `wchp` show the watches of data, not those of children. `mntr` has the metrics of Apache
ZooKeeper that this server counts, and no others.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final

from minikafka.base.ports import Clock
from minikafka.zookeeper.messages.codes import (
    CHILDREN_CHANGED,
    DATA_CHANGED,
    NODE_CREATED,
    NODE_DELETED,
)
from minikafka.zookeeper.messages.replies import ANSWER_BYTES_MAX, AnswerTooLong
from minikafka.zookeeper.server.connection import ServerConnection
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.counters import Counters

VERSION: Final = "3.9.5-minikafka"
"""The release of Apache ZooKeeper whose protocol this server has. Clients parse it as three numbers and a dash."""
_SECOND_MS: Final = 1_000
_EVENT_NAMES: Final = {
    NODE_CREATED: "created",
    NODE_DELETED: "deleted",
    DATA_CHANGED: "changed",
    CHILDREN_CHANGED: "children",
}


class Words:
    """The answers to four-letter words. `table`: word → function that returns the answer."""

    def __init__(
        self,
        state: ServerState,
        connections: Mapping[ServerConnection, None],
        counters: Counters,
        clock: Clock,
    ) -> None:
        self._state = state
        self._connections = connections
        self._counters = counters
        self._clock = clock
        self._started = clock.now()
        self.table: dict[bytes, Callable[[], str]] = {
            b"ruok": lambda: "imok",
            b"isro": lambda: "rw",
            b"srvr": self._srvr,
            b"stat": self._stat,
            b"mntr": self._mntr,
            b"envi": _envi,
            b"cons": self._cons,
            b"dump": self._dump,
            b"wchs": self._wchs,
            b"wchp": self._wchp,
        }

    def _srvr(self) -> str:
        return _lines([f"Zookeeper version: {VERSION}", *self._summary()])

    def _stat(self) -> str:
        clients = [_brief(connection) + ")" for connection in self._connections]
        return _lines([f"Zookeeper version: {VERSION}", "Clients:", *clients, "", *self._summary()])

    def _summary(self) -> list[str]:
        counters = self._counters
        latency = f"{counters.latency_min}/{_rounded(counters.average())}/{counters.latency_max}"
        return [
            f"Latency min/avg/max: {latency}",
            f"Received: {counters.received}",
            f"Sent: {counters.sent}",
            f"Connections: {len(self._connections)}",
            f"Outstanding: {self._outstanding()}",
            f"Zxid: 0x{self._state.zxid:x}",
            "Mode: standalone",
            f"Node count: {len(self._state.tree.nodes)}",
        ]

    def _outstanding(self) -> int:
        return sum(connection.unanswered() for connection in self._connections)

    def _mntr(self) -> str:
        state, counters = self._state, self._counters
        values: dict[str, object] = {
            "version": VERSION,
            "server_state": "standalone",
            "uptime": self._clock.now() - self._started,
            "num_alive_connections": len(self._connections),
            "connection_rejected": counters.connections_refused,
            "outstanding_requests": self._outstanding(),
            "znode_count": len(state.tree.nodes),
            "ephemerals_count": sum(map(len, state.tree.ephemerals.values())),
            "watch_count": len(state.data_watches) + len(state.child_watches),
            "global_sessions": len(state.sessions.open),
            "stale_sessions_expired": counters.sessions_expired,
            "packets_received": counters.received,
            "packets_sent": counters.sent,
            "bytes_received_count": counters.bytes_received,
            "response_bytes": counters.bytes_sent,
            "min_latency": counters.latency_min,
            "avg_latency": _rounded(counters.average()),
            "max_latency": counters.latency_max,
            "cnt_updatelatency": counters.writes,
            "cnt_readlatency": counters.answered - counters.writes,
            "cnt_fsynctime": counters.flushes,
            "sum_fsynctime": counters.flush_ms,
            "max_fsynctime": counters.flush_ms_max,
        }
        for kind, name in _EVENT_NAMES.items():
            values[f"sum_node_{name}_watch_count"] = counters.events[kind]
        return _lines(f"zk_{name}\t{value}" for name, value in values.items())

    def _cons(self) -> str:
        return _lines([*map(self._details, self._connections), ""])

    def _details(self, connection: ServerConnection) -> str:
        session = self._state.sessions.open.get(connection.session_id)
        if session is None:
            return _brief(connection) + ")"
        counters = connection.counters
        name, xid = connection.last_request
        return (
            f"{_brief(connection)},sid=0x{session.id:x},lop={name},est={connection.since_ms},"
            f"to={session.timeout_ms},lcxid=0x{xid & 2**64 - 1:x},lzxid=0x{connection.last_zxid:x},"
            f"lresp={connection.last_sent_ms},llat={counters.latency_last},minlat={counters.latency_min},"
            f"avglat={int(counters.average())},maxlat={counters.latency_max})"
        )

    def _dump(self) -> str:
        return _lines(chain(self._session_sets(), self._ephemeral_nodes(), self._connection_sets()))

    def _session_sets(self) -> Iterator[str]:
        buckets = self._state.sessions.buckets()
        yield "SessionTracker dump:"
        yield f"Session Sets ({len(buckets)})/({len(self._state.sessions.open)}):"
        for expires, ids in buckets.items():
            yield f"{len(ids)} expire at {self._date(expires)}:"
            yield from (f"\t0x{id_:x}" for id_ in ids)

    def _ephemeral_nodes(self) -> Iterator[str]:
        owners = self._state.tree.ephemerals
        yield "ephemeral nodes dump:"
        yield f"Sessions with Ephemerals ({len(owners)}):"
        for id_, paths in owners.items():
            yield f"0x{id_:x}:"
            yield from (f"\t{path}" for path in paths)

    def _connection_sets(self) -> list[str]:
        sets: dict[int, list[ServerConnection]] = {}
        for connection in self._connections:
            session = self._state.sessions.open.get(connection.session_id)
            expires = connection.deadline if session is None else session.expires
            sets.setdefault(expires, []).append(connection)
        lines = [
            "Connections dump:",
            f"Connections Sets ({len(sets)})/({len(self._connections)}):",
        ]
        for expires, members in sorted(sets.items(), key=lambda item: item[0]):
            lines.append(f"{len(members)} expire at {self._date(expires)}:")
            lines += (
                f"\tip: /{each.link.peer()} sessionId: 0x{each.session_id:x}" for each in members
            )
        return lines

    def _date(self, then: int) -> str:
        """Return a time of the monotonic clock as Java prints it."""
        wall_ms = self._clock.wall_ms() + then - self._clock.now()
        return time.strftime("%a %b %d %H:%M:%S %Z %Y", time.localtime(wall_ms // _SECOND_MS))

    def _wchs(self) -> str:
        watches = self._state.data_watches
        return _lines(
            [
                f"{len(watches.by_client)} connections watching {len(watches.by_path)} paths",
                f"Total watches:{len(watches)}",
            ]
        )

    def _wchp(self) -> str:
        lines = []
        for path, watchers in self._state.data_watches.by_path.items():
            lines.append(str(path))
            found = (each for each in watchers if isinstance(each, ServerConnection))
            lines += (f"\t0x{each.session_id:x}" for each in found)
        return _lines([*lines, ""])


def _brief(connection: ServerConnection) -> str:
    counters = connection.counters
    interest = 0 if connection.is_paused else 1
    counts = f"queued={connection.unanswered()},recved={counters.received},sent={counters.sent}"
    return f" /{connection.link.peer()}[{interest}]({counts}"


def _envi() -> str:
    return _lines(
        ["Environment:", f"zookeeper.version={VERSION}", f"python.version={sys.version.split()[0]}"]
    )


def _rounded(value: float) -> float:
    return round(value, 4)


def _lines(lines: Iterable[str]) -> str:
    """Return the text. Raises AnswerTooLong: a few watched paths may have 1 MB each."""
    found, size = [], 0
    for line in lines:
        size += len(line) + 1
        if size > ANSWER_BYTES_MAX:
            raise AnswerTooLong
        found.append(f"{line}\n")
    return "".join(found)
