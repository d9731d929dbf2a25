"""Faults of the network between brokers, clients and ZooKeeper, in a cluster that was started with `faults`."""

from __future__ import annotations

import difflib
from typing import Any, Final

from minikafka.kafka.wire.versions import NAMES
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.faults.fault import Fault, Hits
from minikafka.tools.cluster.observation.observed import WAIT_MS, ObservedCluster
from minikafka.tools.cluster.processes import ProcessId
from minikafka.tools.cluster.proxy.calls import CALL_SECONDS, NoProxy, call
from minikafka.tools.cluster.proxy.rules import (
    ALL,
    BOTH,
    CLIENTS,
    CUT,
    DELAY,
    DROP,
    RESET,
    FaultRule,
    Peer,
    peer_problem,
    problem_of,
)

HOLD_MS: Final = 1_000
API_KEYS: Final = {name: key for key, name in NAMES.items()}
"""The number of each API by its name in the protocol."""


class NetworkFaults(ObservedCluster):
    """The methods of LocalCluster that harm connections. An end is a broker id, "clients" or "zookeeper".

    `direction`: "both", or "one" for what `a` sends to `b`. `link`: "control" (calls between brokers), "fetch" (ports
    for Kafka requests), "zookeeper" or "all". Faults concern connections that exist and new ones; they add up. Each
    method raises ClusterError if the cluster was not started with `faults`, or has no such link.
    """

    async def cut(self, a: Peer, b: Peer, *, direction: str = BOTH, link: str = ALL) -> Fault:
        """Let nothing pass. What is sent, and the end of a connection, arrives after the fault is healed.

        A new connection is accepted and gets no answer.
        """
        return await self._cause(FaultRule(CUT, a, b, direction, link))

    async def cut_clients(self, broker: int, *, direction: str = BOTH) -> Fault:
        """Cut a broker off from all clients, but not from other brokers. `direction` "one": what clients send."""
        return await self._cause(FaultRule(CUT, CLIENTS, broker, direction))

    async def delay(
        self, a: Peer, b: Peer, ms: int, *, direction: str = BOTH, link: str = ALL
    ) -> Fault:
        """Let each byte arrive later by `ms`, in order. With both directions, an answer is late by twice that time."""
        return await self._cause(FaultRule(DELAY, a, b, direction, link, ms))

    async def drop(self, a: Peer, b: Peer, *, direction: str = BOTH, link: str = ALL) -> Fault:
        """Lose what is sent. A connection that has lost bytes is reset when the fault is healed."""
        return await self._cause(FaultRule(DROP, a, b, direction, link))

    async def reset(self, a: Peer, b: Peer, *, direction: str = BOTH, link: str = ALL) -> Fault:
        """Break all open connections at once with RST; new ones work. `direction` "one": those that `a` has opened."""
        return await self._cause(FaultRule(RESET, a, b, direction, link))

    async def heal(self, a: Peer | None = None, b: Peer | None = None) -> None:
        """End all faults of the network, those of one end, or those between two ends."""
        ids = [broker.id for broker in self.record.brokers]
        for peer in (a, b):
            if peer is not None and (problem := peer_problem(peer, ids)):
                raise ClusterError(problem)
        await self._call("heal", {"a": a, "b": b})

    async def network_faults(self) -> list[Fault]:
        """Return the faults of the network that are in effect, with what they have hit."""
        process = self._proxy()
        found = await call(process, "list", {})
        return [_fault(process, row["name"], row["key"], row["hits"]) for row in found]

    async def after(
        self,
        api: str,
        n: int = 1,
        *,
        broker: int | None = None,
        sender: Peer | None = None,
        hold_ms: int = HOLD_MS,
        timeout_ms: int = WAIT_MS,
    ) -> Fault:
        """Wait until `n` further requests of an API, such as "Produce", have been sent on to a broker (None: any).

        The next such request waits in the proxy until the returned object is healed, or for `hold_ms`: a fault that
        begins meanwhile comes exactly after `n` requests. `sender`: count only those of "clients" or of one broker.
        Raises ClusterError after `timeout_ms`, and if clients connect under TLS.
        """
        process, key, name = self._proxy(), _api_key(api), f"after {n} {api}"
        self._check_wait(api, n, broker, sender)
        request = {
            "name": name,
            "api": key,
            "number": n,
            "broker": broker,
            "sender": sender,
            "hold_ms": hold_ms,
            "timeout_ms": timeout_ms,
        }
        found = await call(process, "after", request, timeout_ms / 1000 + CALL_SECONDS)
        if found["passed"] < n:
            passed = f"{found['passed']} of {n} {api} requests were sent"
            raise ClusterError(f"only {passed} within {timeout_ms / 1000:g} s")
        return _fault(process, name, found["key"], {"requests": n})

    async def open_ports(self) -> None:
        """Open the ports of the proxy behind which a process listens. The proxy does so at regular times anyway."""
        await self._call("look", {})

    def _check_wait(self, api: str, n: int, broker: int | None, sender: Peer | None) -> None:
        if type(n) is not int or n < 1:
            raise ClusterError(f"n must be a whole number of at least 1, got {n!r}")
        record = self.record
        if broker is not None:
            record.broker(broker)
        if isinstance(sender, int):
            record.broker(sender)
        elif sender not in (None, CLIENTS):
            raise ClusterError(f"sender must be a broker id or {CLIENTS}, got {sender!r}")
        chosen = [item for item in record.brokers if broker in (None, item.id)]
        if all(end.security.is_encrypted for item in chosen for end in item.clients):
            raise ClusterError(
                f"requests of {api} cannot be counted: clients connect under TLS, which the proxy cannot read"
            )

    async def _cause(self, rule: FaultRule) -> Fault:
        self._check(rule)
        process = self._proxy()
        key = await call(process, "cause", {"rule": rule})
        return _fault(process, str(rule), key, await call(process, "count", {"key": key}))

    def _check(self, rule: FaultRule) -> None:
        self._proxy()
        record = self.record
        ids = [broker.id for broker in record.brokers]
        if problem := problem_of(rule, ids, has_zookeeper=record.runs_zookeeper):
            raise ClusterError(problem)

    async def _call(self, verb: str, arguments: dict[str, Any]) -> Any:
        return await call(self._proxy(), verb, arguments)

    def _proxy(self) -> ProcessId:
        """Return the process of the proxy. Raises ClusterError if the cluster was started without faults."""
        self.check_faults()
        proxy = self.record.proxy
        if proxy is None or proxy.process is None:
            raise ClusterError("the proxy of faults is not running", "minikafka up starts it")
        return proxy.process


def _fault(process: ProcessId, name: str, key: int, hits: Hits) -> Fault:
    """Return a fault in a proxy. It ends with the process, if that ends first."""

    async def count() -> Hits:
        found: Hits = await call(process, "count", {"key": key})
        return found

    async def heal() -> Hits:
        try:
            await call(process, "heal", {"keys": [key]})
            return await count()
        except NoProxy:
            return fault.hits

    fault = Fault(name, count=count, heal=heal, hits=hits)
    return fault


def _api_key(name: str) -> int:
    if name in API_KEYS:
        return API_KEYS[name]
    near = difflib.get_close_matches(name, API_KEYS, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "use the name in Kafka's protocol"
    raise ClusterError(f"there is no API {name!r}: {hint}")
