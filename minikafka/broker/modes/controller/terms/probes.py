"""The probes of one controller term, which find brokers whose process has died although their session is open.

A report that a connection to a broker has ended makes the controller probe the broker's control listener. Only a
refused connection begins a suspicion (`broker/rpc/liveness.py`). The machine moves the suspect's leaderships. A
suspicion ends with the registration, or when the suspect answers in the same broker epoch, at the earliest one session
timeout after it began. Invariant: each registration is probed at most once at a time, and not after the end of the
term.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeAlias

from minikafka.base.errors import KafkaError
from minikafka.base.model import Broker, BrokerId
from minikafka.broker.ledger.record import BROKER
from minikafka.broker.modes.controller.terms.controllership import Controllership
from minikafka.broker.modes.zookeeper.ports import Ports
from minikafka.broker.rpc.liveness import Presence, Probe
from minikafka.deciders.controller.events import BrokerSuspected, SuspicionEnded

Prober: TypeAlias = Callable[[Broker], Awaitable[Probe]]
"""Probes the control listener of a broker."""
_AGAIN_MS: Final = 500
"""Interval at which a suspect is probed, after one session timeout."""


class BrokerProbes:
    """The probes of one term, and the suspects that they have found. `put(event)` passes an event to the term.

    `suspects`: brokers that refused a connection before the term, each with its broker epoch.
    """

    def __init__(
        self,
        ports: Ports,
        probe: Prober,
        controllership: Controllership,
        put: Callable[[BrokerSuspected | SuspicionEnded], None],
        suspects: Mapping[BrokerId, int],
    ) -> None:
        self._probe = probe
        self._clock = ports.clock
        self._tasks = ports.tasks
        self._ledger = ports.ledger
        self._controllership = controllership
        self._put = put
        self._own_id = ports.broker_id
        self._session_timeout_ms = ports.zookeeper.session_timeout_ms
        """A suspicion lasts at least this long, unless the registration ends."""
        self._earlier = suspects
        self._brokers: Mapping[BrokerId, Broker] | None = None
        """The registered brokers, None before their first read."""
        self._suspects: dict[BrokerId, int] = {}
        self._probed: set[tuple[BrokerId, int]] = set()
        """The registrations that are being probed."""

    def suspects(self) -> dict[BrokerId, int]:
        """Return the current suspects, each with its broker epoch."""
        return dict(self._suspects)

    def brokers_read(self, brokers: Mapping[BrokerId, Broker]) -> None:
        """Take over the registered brokers. At the first call, probe all other brokers at the same time."""
        is_first, self._brokers = self._brokers is None, brokers
        self._suspects = {
            id_: epoch for id_, epoch in self._suspects.items() if self._is_registered(id_, epoch)
        }
        if not is_first:
            return
        for broker in brokers.values():
            if self._earlier.get(broker.id) == broker.epoch:
                self._suspects[broker.id] = broker.epoch
                self._spawn(lambda broker=broker: self._watch(broker), f"suspect-{broker.id}")  # type: ignore[misc]
            elif broker.id != self._own_id:
                self._examine_soon(broker, "")

    def report(self, broker_id: BrokerId, broker_epoch: int, reporter: BrokerId) -> None:
        """Probe a broker, because a connection of `reporter` to this registration of the broker has ended.

        A report about an earlier registration or about a suspect has no effect.
        """
        broker = (self._brokers or {}).get(broker_id)
        if broker is None or broker.epoch != broker_epoch or broker_id == self._own_id:
            return
        self._examine_soon(broker, f"; reported by broker {reporter}")

    def _is_registered(self, broker_id: BrokerId, broker_epoch: int) -> bool:
        broker = (self._brokers or {}).get(broker_id)
        return broker is not None and broker.epoch == broker_epoch

    def _examine_soon(self, broker: Broker, reason: str) -> None:
        registration = (broker.id, broker.epoch)
        if broker.id not in self._suspects and registration not in self._probed:
            self._probed.add(registration)
            self._spawn(lambda: self._examine(broker, reason), f"probe-{broker.id}")

    def _spawn(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Start a task that ends with the term."""

        async def run() -> None:
            with suppress(KafkaError):  # NOT_CONTROLLER: the term has ended
                if not self._controllership.has_ended:
                    await self._controllership.wait_for(work())

        self._tasks.spawn(run(), name)

    async def _examine(self, broker: Broker, reason: str) -> None:
        """Probe a broker. If it refuses the connection, begin a suspicion and wait until it ends."""
        try:
            found = await self._probe(broker)
        finally:
            self._probed.discard((broker.id, broker.epoch))
        if found.presence is not Presence.PRESENT:
            self._note(broker, found, reason)
        if found.presence is Presence.REFUSED and self._is_registered(broker.id, broker.epoch):
            self._suspects[broker.id] = broker.epoch
            evidence = f"connection to {found.where} refused{reason}"
            self._put(BrokerSuspected(broker.id, broker.epoch, evidence))
            await self._watch(broker)

    async def _watch(self, suspect: Broker) -> None:
        """Wait until the registration of a suspect ends, or until the suspect answers."""
        await self._clock.sleep(self._session_timeout_ms)
        while self._suspects.get(suspect.id) == suspect.epoch:
            found = await self._probe(suspect)
            if found.presence is Presence.PRESENT and found.broker_epoch == suspect.epoch:
                self._suspects.pop(suspect.id, None)
                self._put(SuspicionEnded(suspect.id, suspect.epoch))
                return
            await self._clock.sleep(_AGAIN_MS)

    def _note(self, broker: Broker, found: Probe, reason: str) -> None:
        fields: dict[str, Any] = {"fact": "probed", "to": broker.id, "broker_epoch": broker.epoch}
        fields["outcome"] = f"{found.presence.value}{reason}"
        self._ledger.record(BROKER, "", fields)
