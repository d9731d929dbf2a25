"""The links to other brokers and to ZooKeeper that do not work, and since when.

A broker knows this from its own attempts: the fetches from leaders, a small call to each other broker in intervals, and
its ZooKeeper session. Brokers exchange their reports with that call. Nothing here is on the path of a record, and no
decision depends on it, except that a broker which is no longer registered learns it here (`on_unregistered`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import NO_EPOCH, Broker, BrokerId
from minikafka.base.ports import Clock, ControlPlane, Ledger
from minikafka.base.protocol_versions import is_on_everywhere
from minikafka.broker.capabilities import BrokerLifecycle
from minikafka.broker.ledger.record import BROKER
from minikafka.broker.metadata import MetadataCache
from minikafka.broker.replicas.fetchers import Fetchers
from minikafka.broker.rpc.broker_calls import call_broker
from minikafka.broker.rpc.links import (
    LINKS,
    SINCE,
    BrokenLink,
    LinkReport,
    as_json,
    decode_links,
    encode_links,
)
from minikafka.broker.side_by_side import AT_ONCE, all_of

logger = logging.getLogger(__name__)

PERIOD_MS: Final = 5_000
"""Time between two calls to each other broker."""
TIMEOUT_MS: Final = 4_000
FETCH: Final = "fetch"
CALLS: Final = "calls"
ZOOKEEPER: Final = "ZooKeeper"
CONNECTED: Final = "connected"
_MAY_RETURN: Final = (CONNECTED, "suspended")
"""The states of a session that no server can have ended yet."""
_FORGET_MS: Final = 3_600_000
"""Age from which the report of another broker is dropped."""


class _Failure(NamedTuple):
    """Why a link does not work, and since when (monotonic ms). `epoch`: that of the broker which was called."""

    address: str
    since: int
    error: str
    epoch: int = NO_EPOCH


class _Received(NamedTuple):
    """A report of another broker, and when this broker got it (monotonic ms)."""

    report: LinkReport
    at: int


class Links:
    """The broken links of one broker, and the latest reports of the other brokers.

    `registration()` returns the epoch of this broker's registration. `on_unregistered()` is called once this broker has
    learnt that this registration has ended, which it cannot read without ZooKeeper.
    """

    def __init__(
        self,
        broker_id: BrokerId,
        metadata: MetadataCache,
        fetchers: Fetchers,
        lifecycle: BrokerLifecycle,
        control_plane: ControlPlane,
        clock: Clock,
        ledger: Ledger,
        registration: Callable[[], int],
        on_unregistered: Callable[[], None],
    ) -> None:
        config = fetchers.config
        self._id = broker_id
        self._metadata = metadata
        self._fetchers = fetchers
        self._lifecycle = lifecycle
        self._control_plane = control_plane
        self._listener = config.endpoints.control.name
        self._zookeeper = config.zookeeper_connect
        self._clock = clock
        self._ledger = ledger
        self._registration = registration
        self._on_unregistered = on_unregistered
        self._peers: dict[BrokerId, Broker] = {}
        """The other brokers, with those that are no longer alive but have replicas."""
        self._failures: dict[tuple[BrokerId | None, str], _Failure] = {}
        self._reached: dict[BrokerId, int] = {}
        """When each other broker has last answered (monotonic ms)."""
        self._received: dict[BrokerId, _Received] = {}
        self._confirmed: dict[BrokerId, int] = {}
        """The registration of this broker that each other broker has listed."""
        self._ended = -1
        """The registration whose end was reported to `on_unregistered`."""
        self._noted: dict[tuple[BrokerId | None, str], BrokenLink] = {}
        """The broken links in the ledger."""

    async def run(self) -> None:
        """Call all other brokers in intervals. Never returns."""
        while True:
            self._update_peers()
            await all_of(map(self._call, list(self._peers.values())), AT_ONCE)
            self._note_changes()
            await self._clock.sleep(PERIOD_MS)

    def serve(self, body: object) -> dict[str, Any]:
        """Return the response to the call of another broker, and keep the reports that it has sent."""
        asked = decode_links(body)
        self._keep(asked.reports)
        known = self._metadata.brokers.get(asked.broker_id)
        return encode_links(self._id, NO_EPOCH if known is None else known.epoch, self._reports())

    def report(self) -> dict[str, Any]:
        """Return the latest reports of all brokers, by broker id."""
        return as_json(self._reports())

    def broken(self) -> list[BrokenLink]:
        """Return the links of this broker that do not work now."""
        now, wall = self._clock.now(), self._clock.wall_ms()
        self._look_at_session(now)
        failures = [*self._called(), *self._fetches(now)]
        return [
            BrokenLink(
                to, use, found.address, wall - (now - found.since), now - found.since, found.error
            )
            for (to, use), found in failures
        ]

    def _called(self) -> Iterator[tuple[tuple[BrokerId | None, str], _Failure]]:
        """Yield the failures, except those of calls to a broker that has registered again since then."""
        for (to, use), failure in self._failures.items():
            known = None if to is None else self._metadata.brokers.get(to)
            if known is None or known.epoch == failure.epoch:
                yield (to, use), failure

    def _fetches(self, now: int) -> Iterator[tuple[tuple[BrokerId | None, str], _Failure]]:
        for leader, (address, since, error) in self._fetchers.broken(now).items():
            yield (leader, FETCH), _Failure(address, since, error)

    def _look_at_session(self, now: int) -> None:
        state, key = self._lifecycle.session_state, (None, ZOOKEEPER)
        if state == CONNECTED:
            self._failures.pop(key, None)
            return
        since = self._failures[key].since if key in self._failures else now
        error = f"its session: {state.replace('_', ' ')}"
        self._failures[key] = _Failure(self._zookeeper, since, error)

    # ---- reports

    def _reports(self) -> dict[BrokerId, LinkReport]:
        now = self._clock.now()
        found = {
            id_: report.older(now - at)
            for id_, (report, at) in self._received.items()
            if report.age_ms + now - at < _FORGET_MS
        }
        reached_ms = {id_: now - at for id_, at in self._reached.items() if id_ in self._peers}
        return {**found, self._id: LinkReport(0, tuple(self.broken()), reached_ms)}

    def _keep(self, reports: Any) -> None:
        """Keep each report of another broker that is newer than the one that this broker has."""
        now = self._clock.now()
        for id_, report in reports.items():
            known = self._received.get(id_)
            age = None if known is None else known.report.age_ms + now - known.at
            if id_ != self._id and (age is None or report.age_ms < age):
                self._received[id_] = _Received(report, now)

    # ---- calls

    def _update_peers(self) -> None:
        if not self._is_on():
            self._peers = {}
            self._drop_failures()
            return
        alive = {id_: one for id_, one in self._metadata.brokers.items() if id_ != self._id}
        gone = {id_: one for id_, one in self._peers.items() if id_ not in alive}
        self._peers = {**alive, **{id_: one for id_, one in gone.items() if self._has_replica(id_)}}
        self._drop_failures()

    def _is_on(self) -> bool:
        """True if all registered brokers know the call."""
        registered = self._metadata.brokers.values()
        return is_on_everywhere(SINCE, (broker.versions for broker in registered))

    def _drop_failures(self) -> None:
        for to, use in [key for key in self._failures if key[1] == CALLS]:
            if to not in self._peers:
                del self._failures[to, use]

    def _has_replica(self, broker_id: BrokerId) -> bool:
        return any(
            broker_id in state.replicas
            for partitions in self._metadata.topics.values()
            for state in partitions.values()
        )

    async def _call(self, broker: Broker) -> None:
        endpoint = broker.endpoint(self._listener)
        if endpoint is None:
            return
        body = encode_links(self._id, self._registration(), self._reports())
        key = (broker.id, CALLS)
        try:
            answer = await call_broker(
                self._control_plane, broker, self._listener, LINKS, body, TIMEOUT_MS
            )
            told = decode_links(answer)
        except OSError as error:
            address = f"{endpoint.host}:{endpoint.port}"
            since = self._failures[key].since if key in self._failures else self._clock.now()
            self._failures[key] = _Failure(address, since, reason_of(error, address), broker.epoch)
            return
        except KafkaError as error:
            # It answers: it has just returned to an earlier version, which does not know the call.
            if error.code is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
                self._answered(broker.id)
            return
        self._answered(broker.id)
        self._keep(told.reports)
        self.compare_registration(broker.id, told.epoch)

    def _answered(self, broker_id: BrokerId) -> None:
        self._failures.pop((broker_id, CALLS), None)
        self._reached[broker_id] = self._clock.now()

    def compare_registration(self, by: BrokerId, epoch: int) -> None:
        """Act on the registration of this broker that another one lists; NO_EPOCH: none.

        Only a broker that has listed the current registration before can know that it has ended.
        """
        own = self._registration()
        if epoch == own:
            self._confirmed[by] = own
        elif (
            self._confirmed.get(by) == own != self._ended
            and self._lifecycle.session_state not in _MAY_RETURN
        ):
            self._ended = own
            self._on_unregistered()

    def _note_changes(self) -> None:
        """Write the links that have failed, and those that work again, to the ledger and the log."""
        now = {(link.to, link.use): link for link in self.broken()}
        for key in now.keys() - self._noted.keys():
            self._note("link broken", now[key])
            logger.warning("cannot reach %s: %s", _named(now[key]), now[key].error)
        for key in self._noted.keys() - now.keys():
            self._note("link works again", self._noted[key])
            logger.info("reached %s again", _named(self._noted[key]))
        self._noted = now

    def _note(self, fact: str, link: BrokenLink) -> None:
        fields = {"fact": fact, "to": link.to, "use": link.use, "address": link.address}
        self._ledger.record(BROKER, "", {**fields, "error": link.error})


def _named(link: BrokenLink) -> str:
    who = "ZooKeeper" if link.to is None else f"broker {link.to}"
    return f"{who} at {link.address} ({link.use})"


def reason_of(error: OSError, address: str) -> str:
    """Return why a broker was not reached, without its address."""
    if isinstance(error, TimeoutError):
        return f"no response within {TIMEOUT_MS // 1000} s"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    return (str(error) or "no response").removeprefix(f"{address}: ")
