"""The quotas of clients that this broker enforces (KIP-13, KIP-55, KIP-124, KIP-219, KIP-599).

The stored quotas come from the coordination mode. Each broker counts its own share of a client's requests, as in Kafka.
As long as no quota of bytes or time is stored, no connection counts anything (`is_metered`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

from minikafka.base.config import BrokerConfig
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.metrics import Histogram, MetricKind, Metrics, Sample
from minikafka.base.ports import Clock
from minikafka.broker.capabilities import Overrides
from minikafka.security.quotas import (
    CLIENT_KEYS,
    CONNECTION,
    CONSUMER,
    DEFAULT,
    MUTATION,
    PRODUCER,
    REQUEST,
    Buckets,
    ClientQuotas,
    Limit,
    QuotaEntity,
    Rates,
    TokenBucket,
    Windows,
    parse_quota,
)

logger = logging.getLogger(__name__)

_PERCENT_PER_NS: Final = 100 / 1e9
_TYPES: Final = {PRODUCER: "Produce", CONSUMER: "Fetch", REQUEST: "Request"}
"""Quota → type of Kafka's bean."""


class ClientLimits(NamedTuple):
    """The limits that apply to one client: of produced bytes, of fetched bytes, and of the broker's time."""

    producer: Limit | None
    consumer: Limit | None
    request: Limit | None


class Mutations:
    """The changes of topics in one request, which take tokens of the client's quota (KIP-599).

    A strict request is refused while tokens are missing. Any other request is only answered with the time to wait.
    """

    def __init__(
        self, bucket: TokenBucket | None, bound: float, clock: Clock, *, strict: bool
    ) -> None:
        self._bucket = bucket
        self._bound = bound
        self._clock = clock
        self._strict = strict
        self._throttle_ms = 0
        self._since = 0

    def record(self, partitions: int) -> None:
        """Count created or deleted partitions. Raises KafkaError THROTTLING_QUOTA_EXCEEDED."""
        if self._bucket is None:
            return
        now = self._clock.now()
        if self._strict and (missing_ms := self._bucket.throttle_ms(self._bound, now)):
            self._throttle_ms, self._since = missing_ms, now
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
            )
        self._bucket.take(partitions, self._bound, now)
        if not self._strict:
            self._throttle_ms, self._since = self._bucket.throttle_ms(self._bound, now), now

    @property
    def throttle_ms(self) -> int:
        """The time that the client must still wait."""
        return max(self._throttle_ms - (self._clock.now() - self._since), 0)


class BrokerQuotas:
    """All stored quotas, and what the clients of this broker have used.

    `throttle_times`: by API key, where times to wait are counted. `version` changes with every change of a quota.
    `on_change` is called after each.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        metrics: Metrics,
        throttle_times: Mapping[int, Histogram],
    ) -> None:
        self._clock = clock
        self._throttle_times = throttle_times
        windows = Windows(config.quota_window_num, config.quota_window_size_seconds * 1000)
        mutation_windows = Windows(
            config.controller_quota_window_num, config.controller_quota_window_size_seconds * 1000
        )
        self.stored: dict[QuotaEntity, dict[str, float]] = {}
        """The quotas of each owner, by key."""
        self._limits = {key: ClientQuotas() for key in CLIENT_KEYS}
        self._rates = {key: Rates(windows) for key in (PRODUCER, CONSUMER, REQUEST)}
        self._buckets = Buckets(mutation_windows)
        self._window_max_ms = windows.size_ms
        self._fetch_seconds = max(windows.number - 1, 1) * windows.size_ms / 1000
        self.version = 0
        self.on_change: Callable[[], None] = lambda: None
        self._register(metrics)

    def load(self, quotas: Mapping[QuotaEntity, Overrides]) -> None:
        """Replace the quotas of these owners."""
        has_changed = False
        for owner, overrides in quotas.items():
            found = _parsed(owner, overrides)
            if found == self.stored.get(owner, {}):
                continue
            has_changed = True
            logger.info("quotas of %s are now %s", _shown(owner), found)
            if found:
                self.stored[owner] = found
            else:
                self.stored.pop(owner, None)
            if owner.ip is None:
                for key, limits in self._limits.items():
                    limits.set(owner.user, owner.client_id, found.get(key))
        if has_changed:
            self.version += 1
            self.on_change()

    @property
    def is_metered(self) -> bool:
        """True if connections must count what their clients use."""
        return any(self._limits.values())

    def limits_of(self, user: str, client_id: str) -> ClientLimits:
        """Return the limits that apply to a client."""
        found = (
            self._limits[key].applicable(user, client_id) for key in (PRODUCER, CONSUMER, REQUEST)
        )
        return ClientLimits(*found)

    def produced(self, limit: Limit | None, size: int) -> int:
        """Count produced bytes; return the time (ms) that the client must wait."""
        return 0 if limit is None else self._record(PRODUCER, limit, size)

    def fetched(self, limit: Limit | None, size: int) -> int:
        """Count the bytes of a response to Fetch; return the time (ms) that the client must wait."""
        return 0 if limit is None else self._record(CONSUMER, limit, size)

    def spent(self, limit: Limit | None, nanoseconds: int) -> int:
        """Count time that the broker has spent on a client; return the time (ms) that the client must wait."""
        if limit is None:
            return 0
        throttle_ms = self._record(REQUEST, limit, nanoseconds * _PERCENT_PER_NS)
        return min(throttle_ms, self._window_max_ms)

    def fetch_throttle_ms(self, limit: Limit | None) -> int:
        """Return the time (ms) that a consumer must wait before it gets records."""
        if limit is None:
            return 0
        now = self._clock.now()
        return self._rates[CONSUMER].of(limit.client, now).throttle_ms(limit.bound, now)

    def fetch_bytes_max(self, limit: Limit) -> int:
        """Return how many bytes a response may have, so that it alone does not exceed the quota."""
        return int(limit.bound * self._fetch_seconds)

    def throttled(self, api: int, throttle_ms: int) -> None:
        """Count a response with a time to wait."""
        self._throttle_times[api].record(throttle_ms)

    def _record(self, key: str, limit: Limit, value: float) -> int:
        now = self._clock.now()
        rate = self._rates[key].of(limit.client, now)
        rate.record(value, now)
        return rate.throttle_ms(limit.bound, now)

    def mutations(self, user: str, client_id: str, *, strict: bool) -> Mutations:
        """Return what counts the changes of topics in one request of a client."""
        limit = self._limits[MUTATION].applicable(user, client_id)
        if limit is None:
            return Mutations(None, 0, self._clock, strict=strict)
        bucket = self._buckets.of(limit.client, self._clock.now())
        return Mutations(bucket, limit.bound, self._clock, strict=strict)

    def connection_rate(self, ip: str) -> float | None:
        """Return the limit of new connections per second from an address; None without a limit."""
        for owner in (QuotaEntity(ip=ip), QuotaEntity(ip=DEFAULT)):
            bound = self.stored.get(owner, {}).get(CONNECTION)
            if bound is not None:
                return bound
        return None

    def _register(self, metrics: Metrics) -> None:
        for key, kind in _TYPES.items():
            unit = "Percent of a processor" if key == REQUEST else "Bytes per second"
            name = "request-time" if key == REQUEST else "byte-rate"
            metrics.collect(
                f"kafka.server:type={kind},name={name}",
                MetricKind.GAUGE,
                f"{unit} used by clients with a quota, by user and client id.",
                partial(self._samples, key),
            )

    def _samples(self, key: str) -> Iterator[Sample]:
        now = self._clock.now()
        for (user, client_id), rate in self._rates[key].items():
            yield Sample({"user": user, "client_id": client_id}, rate.per_second(now))


def _parsed(owner: QuotaEntity, overrides: Overrides) -> dict[str, float]:
    """Return the quotas in an owner's settings. Malformed quotas are logged and left out."""
    found = {}
    for key in CLIENT_KEYS if owner.ip is None else (CONNECTION,):
        text = overrides.get(key)
        if text is not None:
            try:
                found[key] = parse_quota(key, text)
            except ValueError as error:
                logger.error("Ignoring a quota of %s: %s", _shown(owner), error)
    return found


def _shown(owner: QuotaEntity) -> str:
    parts = zip(("user", "client id", "address"), owner, strict=True)
    return ", ".join(
        f"{kind} {'<default>' if name is DEFAULT else ascii(name)}"
        for kind, name in parts
        if name is not None
    )
