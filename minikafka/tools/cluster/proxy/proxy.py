"""The proxy of a cluster: its ports, connections and faults."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from minikafka.base.ports import Clock, Tasks
from minikafka.tools.cluster.proxy.addresses import peer_at
from minikafka.tools.cluster.proxy.front import Front, ProxyRoute
from minikafka.tools.cluster.proxy.relay import Relay
from minikafka.tools.cluster.proxy.requests import RequestCount
from minikafka.tools.cluster.proxy.rules import (
    RESET,
    Effect,
    FaultRule,
    Peer,
    Way,
    effect_of,
)

_LOOK_MS: Final = 20


@dataclass(slots=True)
class Active:
    """A fault, or the wait for a request, with what it has hit."""

    name: str
    rule: FaultRule | None = None
    connections: set[int] = field(default_factory=set)
    bytes: int = 0
    requests: int = 0
    is_healed: bool = False

    def hits(self) -> dict[str, int]:
        """Return the counts by kind; the wait for a request counts only requests."""
        if self.rule is None:
            return {"requests": self.requests}
        counts = {"connections": len(self.connections), "bytes": self.bytes}
        return {**counts, "requests": self.requests}


class RequestWait(RequestCount):
    """The wait for requests of one API to a broker (None: any) by a sender (None: any)."""

    def __init__(self, api: int, number: int, broker: Peer | None, sender: Peer | None) -> None:
        super().__init__(api, number)
        self.broker = broker
        self.sender = sender
        self.reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def concerns(self, way: Way) -> bool:
        """True if it counts requests that are sent this way."""
        return self.broker in (None, way.receiver) and self.sender in (None, way.sender)


class _WatchesOf:
    """The waits that concern one way."""

    def __init__(self, proxy: FaultProxy, way: Way) -> None:
        self._proxy = proxy
        self._way = way

    def current(self) -> Sequence[RequestCount]:
        waits = self._proxy.waits
        return [wait for wait in waits if wait.concerns(self._way)] if waits else ()

    def passed(self, watch: RequestCount) -> None:
        assert isinstance(watch, RequestWait)
        watch.passed += 1
        self._proxy.waits[watch].requests += 1
        if watch.is_reached and not watch.reached.done():
            watch.reached.set_result(None)


class FaultProxy:
    """All ports of a cluster, the connections through them, and the faults in effect."""

    def __init__(self, clock: Clock, tasks: Tasks) -> None:
        self.spawn = tasks.spawn
        self._clock = clock
        self.waits: dict[RequestWait, Active] = {}
        self.active: dict[int, Active] = {}
        """The faults and waits by their keys. Those that are healed stay, with their counts."""
        self._fronts: dict[int, Front] = {}
        self.relays: dict[int, Relay] = {}
        """The open connections by their numbers."""
        self._numbers: dict[Relay, int] = {}
        self._next = 1

    # Ports

    def set_routes(self, routes: Iterable[ProxyRoute]) -> None:
        """Serve these ports, and close all others."""
        wanted = {route.port: route for route in routes}
        for port in self._fronts.keys() - wanted.keys():
            self._fronts.pop(port).close()
        for port, route in wanted.items():
            if port in self._fronts:
                self._fronts[port].route = route
            else:
                self._fronts[port] = Front(route, self._accept)
        self.look()

    def look(self) -> None:
        """Open the ports behind which a process listens now."""
        for front in self._fronts.values():
            if not front.is_open:
                front.look()

    async def keep_looking(self) -> None:
        """Open ports when a process listens behind them, until this task is cancelled."""
        while True:
            await self._clock.sleep(_LOOK_MS)
            self.look()

    def _accept(self, route: ProxyRoute, sock: socket.socket, source: str) -> None:
        way = Way(peer_at(source), route.target, route.link)
        relay = Relay(
            self,
            way,
            sock,
            source,
            route.behind,
            _WatchesOf(self, way),
            self._fronts[route.port].look_twice,
            is_plain=route.is_plain,
        )
        number, self._next = self._next, self._next + 1
        self.relays[number], self._numbers[relay] = relay, number
        self.spawn(relay.start(), "connection")

    # What connections need

    def effect(self, way: Way) -> Effect:
        """Return what the current faults do to a way."""
        rules = (
            (key, active.rule)
            for key, active in self.active.items()
            if active.rule is not None and not active.is_healed
        )
        return effect_of(rules, way)

    def note(self, connection: Relay, effect: Effect, size: int, requests: int) -> None:
        """Count bytes and requests of a connection that faults hit."""
        for key in effect.rules:
            active = self.active[key]
            active.connections.add(self._numbers.get(connection, 0))
            active.bytes += size
            active.requests += requests

    def forget(self, connection: Relay) -> None:
        """Forget a connection that has ended."""
        self.relays.pop(self._numbers.pop(connection, 0), None)

    # Faults

    def cause(self, rule: FaultRule) -> int:
        """Cause a fault; return its key. A reset is over at once."""
        active = Active(str(rule), rule)
        key, self._next = self._next, self._next + 1
        self.active[key] = active
        if rule.verb == RESET:
            self._reset(active, rule)
        else:
            self._update()
        return key

    def _reset(self, active: Active, rule: FaultRule) -> None:
        active.is_healed = True
        for number, relay in list(self.relays.items()):
            if rule.applies_to(relay.up.way):
                active.connections.add(number)
                relay.reset()

    def wait_for(self, wait: RequestWait, name: str) -> int:
        """Begin to count requests; return the key of the wait. Requests above its number wait until it is healed."""
        key, self._next = self._next, self._next + 1
        self.active[key] = self.waits[wait] = Active(name)
        return key

    def heal(self, keys: Iterable[int]) -> None:
        """End faults and waits."""
        for key in keys:
            active = self.active[key]
            active.is_healed = True
            for wait in [wait for wait, of in self.waits.items() if of is active]:
                del self.waits[wait]
        self._update()

    def current(self, a: Peer | None = None, b: Peer | None = None) -> list[int]:
        """Return the keys of the faults in effect that concern these peers; without one, also those of waits."""
        return [
            key
            for key, active in self.active.items()
            if not active.is_healed
            and (active.rule.concerns(a, b) if active.rule else a is None and b is None)
        ]

    def _update(self) -> None:
        for relay in list(self.relays.values()):
            relay.update()

    def close(self) -> None:
        """Close all ports and connections."""
        for front in self._fronts.values():
            front.close()
        for relay in list(self.relays.values()):
            relay.reset()
