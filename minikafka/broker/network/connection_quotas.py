"""Limits of connections: their number from one address, and how many are opened per second (KIP-308, KIP-612).

A connection above `max.connection.creation.rate` is not read for a while, and one above the `max.connections` of its
listener not before another one ends. One above the rate of its address is closed after this time, and one above the
number of its address at once. With several listeners, connections of the brokers' own one are counted for themselves.
All limits can change while the broker runs.
"""

from __future__ import annotations

import logging
from functools import partial
from ipaddress import ip_address
from typing import Final, NamedTuple

from minikafka.base.config import BrokerConfig
from minikafka.base.config.keys import INT_MAX
from minikafka.base.config.quotas import per_ip_overrides
from minikafka.base.config.security import LISTENER_LIMITS, PREFIX
from minikafka.base.metrics import Metrics
from minikafka.base.ports import Clock, Link, Timer
from minikafka.broker.clients.quotas import BrokerQuotas
from minikafka.broker.services import ClientConnection
from minikafka.security.quotas import Rate, Rates, Windows

logger = logging.getLogger(__name__)

_EPISODE_MS: Final = 60_000
"""A refusal after this time without a refusal of the same address gets a log line."""


class _Open(NamedTuple):
    host: str
    listener: str
    link: Link
    is_counted: bool


class ConnectionQuotas:
    """The open connections of all listeners by address. `refused` counts those that were closed."""

    def __init__(self, config: BrokerConfig, clock: Clock, quotas: BrokerQuotas) -> None:
        self._clock = clock
        self._quotas = quotas
        listeners = config.endpoints
        self.protected = listeners.inter_broker if len(listeners.kafka) > 1 else None
        """The listener that the limits of the whole broker do not concern."""
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self._longest_ms = windows.size_ms
        self._rate = Rate(windows)
        self._rates = Rates(windows)
        names = [item.name for item in listeners.kafka]
        self._listener_rates = {name: Rate(windows) for name in names}
        self._places = dict.fromkeys(names, 0)
        """Number of connections of each listener that are served."""
        self._waiting: dict[str, dict[int, None]] = {name: {} for name in names}
        """Ids of the connections that wait for the end of another one, by listener, the oldest first."""
        self._delays: dict[int, Timer] = {}
        """Ends the time for which a connection is not read, or closes it then, by id of the connection."""
        self._open: dict[int, _Open] = {}
        """By id of the connection."""
        self._counts: dict[str, int] = {}
        self._logged: dict[str, int] = {}
        self.refused = 0
        self.configure(config)

    def configure(self, config: BrokerConfig) -> None:
        """Replace the limits. Connections that waited for a higher limit are served; none is closed."""
        self._most = config.max_connections_per_ip
        self._overrides = per_ip_overrides(config)
        self._rate_max = config.max_connection_creation_rate
        self._limits = {name: _limits(config, name) for name in self._places}
        """The largest number of connections and the rate of each listener."""
        for listener in self._waiting:
            self._serve_waiting(listener)

    def opened(self, client: ClientConnection, link: Link) -> None:
        """Count a new connection; delay or close it if there are too many. A known connection changes nothing."""
        if client.id in self._open:
            return
        host, listener = _normal(client.host), client.listener
        delay_ms = self._delay_ms(listener)
        ip_delay_ms = self._ip_delay_ms(host)
        self._open[client.id] = _Open(host, listener, link, is_counted=not ip_delay_ms)
        if ip_delay_ms:
            self._log(host, "opens too many connections per second")
            self._record_rates(listener, -1)
            link.pause_reading()
            self._delays[client.id] = self._clock.call_later(ip_delay_ms, link.abort)
            return
        if delay_ms:
            link.pause_reading()
            end = partial(self._end_delay, client.id)
            self._delays[client.id] = self._clock.call_later(delay_ms, end)
        if self._places[listener] < self._limits[listener][0]:
            self._places[listener] += 1
        else:
            link.pause_reading()
            self._waiting[listener][client.id] = None
        count = self._counts[host] = self._counts.get(host, 0) + 1
        if count > self._overrides.get(host, self._most):
            self._log(host, "has too many connections (max.connections.per.ip)")
            link.abort()

    def closed(self, client: ClientConnection) -> None:
        """Forget a connection that has ended."""
        known = self._open.pop(client.id, None)
        if known is None:
            return
        if (delay := self._delays.pop(client.id, None)) is not None:
            delay.cancel()
        if not known.is_counted:
            return
        self._counts[known.host] -= 1
        if not self._counts[known.host]:
            del self._counts[known.host]
        if self._waiting[known.listener].pop(client.id, False) is False:
            self._places[known.listener] -= 1
            self._serve_waiting(known.listener)

    def _serve_waiting(self, listener: str) -> None:
        """Serve the connections that have waited the longest, as many as the limit of the listener allows."""
        waiting, most = self._waiting[listener], self._limits[listener][0]
        while waiting and self._places[listener] < most:
            oldest = next(iter(waiting))
            del waiting[oldest]
            self._places[listener] += 1
            if oldest not in self._delays:
                self._open[oldest].link.resume_reading()

    def _end_delay(self, connection: int) -> None:
        del self._delays[connection]
        known = self._open[connection]
        if connection not in self._waiting[known.listener]:
            known.link.resume_reading()

    def register(self, metrics: Metrics) -> None:
        """Register the metric of connections that were closed."""
        metrics.computed_counter(
            "kafka.network:type=SocketServer,name=LimitedConnections",
            "Connections closed because their address had, or opened, too many.",
            lambda: self.refused,
        )

    def _delay_ms(self, listener: str) -> int:
        """Count a new connection; return the time after which the rates are within their limits."""
        self._record_rates(listener, 1)
        now, delay_ms = self._clock.now(), 0
        for rate, most in self._rates_of(listener):
            delay_ms = max(delay_ms, rate.throttle_ms(most, now))
        return min(delay_ms, self._longest_ms)

    def _record_rates(self, listener: str, connections: int) -> None:
        for rate, _ in self._rates_of(listener):
            rate.record(connections, self._clock.now())

    def _rates_of(self, listener: str) -> list[tuple[Rate, int]]:
        """Return the rates that count the connections of a listener and have a limit, each with its limit."""
        rates = [(self._listener_rates[listener], self._limits[listener][1])]
        if listener != self.protected:
            rates.append((self._rate, self._rate_max))
        return [(rate, most) for rate, most in rates if most != INT_MAX]

    def _ip_delay_ms(self, host: str) -> int:
        bound = self._quotas.connection_rate(host)
        if bound is None:
            return 0
        now = self._clock.now()
        rate = self._rates.of(("", host), now)
        rate.record(1, now)
        delay_ms = min(rate.throttle_ms(bound, now), self._longest_ms)
        if delay_ms:
            rate.record(-1, now)  # a connection that is refused is not counted
        return delay_ms

    def _log(self, host: str, reason: str) -> None:
        self.refused += 1
        now = self._clock.now()
        if now - self._logged.get(host, -_EPISODE_MS) >= _EPISODE_MS:
            self._logged = {
                known: since for known, since in self._logged.items() if now - since < _EPISODE_MS
            }
            logger.info("closing connections from %s: it %s", host, reason)
            self._logged[host] = now


def _limits(config: BrokerConfig, listener: str) -> tuple[int, int]:
    """Return the largest number of connections and the rate of one listener. As in Kafka, the rate of the broker
    applies to a listener without a rate of its own.
    """
    prefix = f"{PREFIX}{listener.lower()}."
    most, rate = (config.listener_keys.get(prefix + name) for name in LISTENER_LIMITS)
    return (
        INT_MAX if most is None else most,
        config.max_connection_creation_rate if rate is None else rate,
    )


def _normal(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host
