"""The four-letter words: what a server tells about itself to administrators, in Apache ZooKeeper's formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from minikafka.base.ports import Clock
from minikafka.zk.core.state import ServerState
from minikafka.zk.server.connection import ClientConnection
from minikafka.zk.server.counters import Counters


class Words:
    """The answers to four-letter words. `table`: word → function that returns the answer."""

    def __init__(
        self,
        state: ServerState,
        connections: Mapping[ClientConnection, None],
        counters: Counters,
        clock: Clock,
    ) -> None:
        self.port = 0
        self._state = state
        self._connections = connections
        self._counters = counters
        self._clock = clock
        self.table: dict[bytes, Callable[[], str]] = {
            b"ruok": lambda: "imok",
            b"isro": lambda: "rw",
            b"srvr": self._srvr,
        }

    def _srvr(self) -> str:
        return f"Zookeeper version: 3.9.5-minikafka\nMode: standalone\nNode count: {len(self._state.tree.nodes)}\n"
