"""Limits of connections: their number from one address, and how many are opened per second (KIP-308, KIP-612).

A connection above `max.connection.creation.rate` is not read for a while, and one above the `max.connections` of its
listener not before another one ends. One above the rate of its address is closed
after this time, and one above the number of its address at once. With several listeners, the brokers' own one is not
counted for `max.connection.creation.rate`.
"""

from __future__ import annotations

import logging
from ipaddress import ip_address
from typing import Final, NamedTuple

from minikafka.base.config import BrokerConfig
from minikafka.base.config.keys import INT_MAX
from minikafka.base.config.security import LISTENER_LIMITS, PREFIX
from minikafka.base.errors import ConfigError
from minikafka.base.metrics import Metrics
from minikafka.base.ports import Clock, Link, Timer
from minikafka.broker.quotas import BrokerQuotas
from minikafka.broker.services import ClientConnection
from minikafka.security.quotas import Rate, Rates, Windows

logger = logging.getLogger(__name__)

_OVERRIDES: Final = "max.connections.per.ip.overrides"
_EPISODE_MS: Final = 60_000
"""A refusal after this time without a refusal of the same address gets a log line."""


class _Open(NamedTuple):
    host: str
    listener: str
    link: Link
    timer: Timer | None


class ConnectionQuotas:
    """The open connections of all listeners by address. `refused` counts those that were closed."""

    def __init__(self, config: BrokerConfig, clock: Clock, quotas: BrokerQuotas) -> None:
        self._clock = clock
        self._quotas = quotas
        self._most = config.max_connections_per_ip
        self._overrides = _overrides(config.max_connections_per_ip_overrides)
        self._rate_max = config.max_connection_creation_rate
        listeners = config.endpoints
        self._uncounted = listeners.inter_broker if len(listeners.kafka) > 1 else None
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        self._longest_ms = windows.size_ms
        self._rate = Rate(windows)
        self._rates = Rates(windows)
        self._limits = {item.name: _limits(config, item.name) for item in listeners.kafka}
        """The largest number of connections and the rate of each listener."""
        self._listener_rates = {item.name: Rate(windows) for item in listeners.kafka}
        self._places = dict.fromkeys(self._limits, 0)
        """Number of connections of each listener that are served."""
        self._waiting: dict[str, dict[int, Link]] = {name: {} for name in self._limits}
        """Connections that wait for the end of another one, by listener and id, the oldest first."""
        self._open: dict[int, _Open] = {}
        """By id of the connection."""
        self._counts: dict[str, int] = {}
        self._logged: dict[str, int] = {}
        self.refused = 0

    def opened(self, client: ClientConnection, link: Link) -> None:
        """Count a new connection; delay or close it if there are too many. A known connection changes nothing."""
        if client.id in self._open:
            return
        host = _normal(client.host)
        delay_ms = self._delay_ms(client.listener)
        ip_delay_ms = self._ip_delay_ms(host)
        if ip_delay_ms and client.listener != self._uncounted and self._rate_max != INT_MAX:
            self._rate.record(-1, self._clock.now())
        count = self._counts[host] = self._counts.get(host, 0) + 1
        timer = None
        if ip_delay_ms:
            self._log(host, "opens too many connections per second")
            link.pause_reading()
            timer = self._clock.call_later(ip_delay_ms, link.abort)
        elif delay_ms:
            link.pause_reading()
            timer = self._clock.call_later(delay_ms, lambda: self._end_delay(client, link))
        self._open[client.id] = _Open(host, client.listener, link, timer)
        if self._places[client.listener] < self._limits[client.listener][0]:
            self._places[client.listener] += 1
        else:
            link.pause_reading()
            self._waiting[client.listener][client.id] = link
        if count > self._overrides.get(host, self._most):
            self._log(host, "has too many connections (max.connections.per.ip)")
            link.abort()

    def closed(self, client: ClientConnection) -> None:
        """Forget a connection that has ended."""
        known = self._open.pop(client.id, None)
        if known is None:
            return
        if known.timer is not None:
            known.timer.cancel()
        self._counts[known.host] -= 1
        if not self._counts[known.host]:
            del self._counts[known.host]
        waiting = self._waiting[known.listener]
        if waiting.pop(client.id, None) is not None:
            return
        self._places[known.listener] -= 1
        if waiting:
            oldest = next(iter(waiting))
            waiting.pop(oldest).resume_reading()
            self._places[known.listener] += 1

    def _end_delay(self, client: ClientConnection, link: Link) -> None:
        if client.id not in self._waiting[client.listener]:
            link.resume_reading()

    def register(self, metrics: Metrics) -> None:
        """Register the metric of connections that were closed."""
        metrics.computed_counter(
            "kafka.network:type=SocketServer,name=LimitedConnections",
            "Connections closed because their address had, or opened, too many.",
            lambda: self.refused,
        )

    def _delay_ms(self, listener: str) -> int:
        now, delay_ms = self._clock.now(), 0
        if self._rate_max != INT_MAX and listener != self._uncounted:
            self._rate.record(1, now)
            delay_ms = self._rate.throttle_ms(self._rate_max, now)
        _, own_max = self._limits[listener]
        if own_max != INT_MAX:
            rate = self._listener_rates[listener]
            rate.record(1, now)
            delay_ms = max(delay_ms, rate.throttle_ms(own_max, now))
        return min(delay_ms, self._longest_ms)

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
    """Return the largest number of connections and the rate that are set for one listener."""
    prefix = f"{PREFIX}{listener.lower()}."
    most, rate = (config.listener_keys.get(prefix + name, INT_MAX) for name in LISTENER_LIMITS)
    return most, rate


def _overrides(entries: tuple[str, ...]) -> dict[str, int]:
    """Return the largest number of connections by address. Raises ConfigError."""
    found = {}
    for entry in entries:
        host, _, count = entry.rpartition(":")
        try:
            found[str(ip_address(host.strip("[] ")))] = int(count)
        except ValueError:
            raise ConfigError(
                f"{_OVERRIDES} must be a list of ADDRESS:NUMBER, got {entry!r}; "
                "names of hosts are not looked up"
            ) from None
    return found


def _normal(host: str) -> str:
    try:
        return str(ip_address(host))
    except ValueError:
        return host
