"""Quotas of users, client ids and addresses: which limit applies, and for how long a client must wait.

The limit of a client is that of the most specific entity, in Kafka's order (`ClientQuotas.applicable`). Rates are
averages over `quota.window.num` windows of `quota.window.size.seconds`. A rate above its limit gives the time after
which the same average is at the limit again. Changes of topics take tokens from a bucket instead (KIP-599). This module
has no clock: times are monotonic milliseconds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Final, Literal, NamedTuple, TypeAlias

from minikafka.base.config.keys import INT_MAX

PRODUCER: Final = "producer_byte_rate"
CONSUMER: Final = "consumer_byte_rate"
REQUEST: Final = "request_percentage"
MUTATION: Final = "controller_mutation_rate"
CONNECTION: Final = "connection_creation_rate"
CLIENT_KEYS: Final = (PRODUCER, CONSUMER, REQUEST, MUTATION)
"""The quotas of users and client ids."""
INTEGERS: Final[Mapping[str, str]] = {PRODUCER: "LONG", CONSUMER: "LONG", CONNECTION: "INT"}
"""The quotas whose values are integers, with the names of their types in Kafka's messages."""
_RATES_MIN: Final = 256


class Default(Enum):
    """The type of `DEFAULT`."""

    DEFAULT = "<default>"


DEFAULT: Final = Default.DEFAULT
"""The name of the entity that stands for all users, client ids or addresses without a quota of their own."""
Name: TypeAlias = str | Literal[Default.DEFAULT] | None
"""The name of a part of an entity; None: the entity has no such part."""


class QuotaEntity(NamedTuple):
    """The owner of quotas: a user, a client id, a client id of a user, or an address."""

    user: Name = None
    client_id: Name = None
    ip: Name = None


Client: TypeAlias = tuple[str, str]
"""The clients that share one rate: (user, client id). An empty string stands for all."""


class Limit(NamedTuple):
    """The limit that applies to a client, and the clients that share it."""

    client: Client
    bound: float


def parse_quota(key: str, text: str) -> float:
    """Return the value of a quota. Raises ValueError."""
    value = float(text)
    if not math.isfinite(value) or value < 0 or (key in INTEGERS and value != int(value)):
        raise ValueError(f"{key} must be a number of at least 0, got {text!r}")
    return value


class ClientQuotas:
    """The stored quotas of one kind, for example all limits `producer_byte_rate`."""

    __slots__ = ("_bounds",)

    def __init__(self) -> None:
        self._bounds: dict[tuple[Name, Name], float] = {}

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def set(self, user: Name, client_id: Name, bound: float | None) -> bool:
        """Set the limit of an entity; None removes it. Return True if the limit has changed."""
        before = self._bounds.get((user, client_id))
        if bound is None:
            self._bounds.pop((user, client_id), None)
        else:
            self._bounds[user, client_id] = bound
        return before != bound

    def applicable(self, user: str, client_id: str) -> Limit | None:
        """Return the limit of a client; None without a limit.

        The order: the user's client id, any client id of the user, the user; the same three for any user; the client
        id; any client id. A limit of a user counts all clients of this user together, every other limit each client id.
        """
        both, of_user, of_id = (user, client_id), (user, ""), ("", client_id)
        for entity, client in (
            ((user, client_id), both),
            ((user, DEFAULT), both),
            ((user, None), of_user),
            ((DEFAULT, client_id), both),
            ((DEFAULT, DEFAULT), both),
            ((DEFAULT, None), of_user),
            ((None, client_id), of_id),
            ((None, DEFAULT), of_id),
        ):
            bound = self._bounds.get(entity)
            if bound is not None and (client_id or entity[1] is None):
                return Limit(client, bound)
        return None


class Windows(NamedTuple):
    """The windows over which a rate is averaged."""

    number: int
    size_ms: int


class Rate:
    """An average per second over windows, as Kafka's `Rate` computes it.

    A sample begins with the first value after the end of the sample before. It counts as long as its latest value is
    younger than all windows together.
    """

    __slots__ = ("_samples", "_total", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._samples: deque[list[float]] = deque()
        """[begin, latest, sum] of each sample, the oldest first. One sample may overlap the windows."""
        self._total = 0.0

    def record(self, value: float, now: int) -> None:
        """Add a value."""
        samples, (count, size_ms) = self._samples, self._windows
        if not samples or now - samples[-1][0] >= size_ms:
            if len(samples) > count:
                self._drop()
            samples.append([now, now, 0.0])
        sample = samples[-1]
        sample[1] = now
        sample[2] += value
        self._total += value

    def _drop(self) -> None:
        self._total -= self._samples.popleft()[2]

    def per_second(self, now: int) -> float:
        """Return the average per second."""
        width = self.width_ms(now)
        return self._total / width * 1000

    def width_ms(self, now: int) -> float:
        """Return the time over which values are averaged: at least all windows but one."""
        samples, (count, size_ms) = self._samples, self._windows
        while samples and now - samples[0][1] >= count * size_ms:
            self._drop()
        elapsed = now - samples[0][0] if samples else 0
        missing = count - 1 - int(elapsed // size_ms)
        return max(elapsed + max(missing, 0) * size_ms, 1)

    def is_idle(self, now: int) -> bool:
        """Return True if no value counts any longer."""
        count, size_ms = self._windows
        return not self._samples or now - self._samples[-1][1] >= count * size_ms

    def throttle_ms(self, bound: float, now: int) -> int:
        """Return the time after which the average is at most `bound`, 0 if it is now."""
        value = self.per_second(now)
        if value <= bound:
            return 0
        if not bound:
            return INT_MAX
        return min(int((value - bound) / bound * self.width_ms(now) + 0.5), INT_MAX)


class TokenBucket:
    """Tokens for changes, which are added over time. A client waits for missing tokens."""

    __slots__ = ("_latest", "_tokens", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._tokens = math.inf
        self._latest = 0

    def take(self, tokens: float, bound: float, now: int) -> None:
        """Take tokens, also more than there are. `bound`: the tokens that are added per second."""
        self._refill(bound, now)
        self._tokens = min(self._burst(bound), self._tokens - tokens)

    def throttle_ms(self, bound: float, now: int) -> int:
        """Return the time after which no token is missing, 0 if none is missing now."""
        self._refill(bound, now)
        if self._tokens >= 0:
            return 0
        return INT_MAX if not bound else min(int(-self._tokens / bound * 1000 + 0.5), INT_MAX)

    def is_idle(self, now: int) -> bool:
        """Return True if the bucket has been full for a while."""
        count, size_ms = self._windows
        return self._tokens >= 0 and now - self._latest >= count * size_ms

    def _burst(self, bound: float) -> float:
        count, size_ms = self._windows
        return count * size_ms / 1000 * bound

    def _refill(self, bound: float, now: int) -> None:
        added = bound * (now - self._latest) / 1000
        self._tokens = min(self._burst(bound), self._tokens + added)
        self._latest = now


class Rates:
    """The rates of the clients that have a limit. A rate is forgotten when none of its values counts any longer."""

    __slots__ = ("_max", "_rates", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._rates: dict[Client, Rate] = {}
        self._max = _RATES_MIN

    def of(self, client: Client, now: int) -> Rate:
        """Return the rate of a client."""
        rate = self._rates.get(client)
        if rate is None:
            if len(self._rates) >= self._max:
                kept = {key: rate for key, rate in self._rates.items() if not rate.is_idle(now)}
                self._rates, self._max = kept, max(_RATES_MIN, 2 * len(kept))
            rate = self._rates[client] = Rate(self._windows)
        return rate

    def items(self) -> list[tuple[Client, Rate]]:
        """Return all rates, by client."""
        return list(self._rates.items())


class Buckets:
    """The token buckets of the clients that have a limit of changes. A full bucket is forgotten."""

    __slots__ = ("_buckets", "_max", "_windows")

    def __init__(self, windows: Windows) -> None:
        self._windows = windows
        self._buckets: dict[Client, TokenBucket] = {}
        self._max = _RATES_MIN

    def __len__(self) -> int:
        return len(self._buckets)

    def of(self, client: Client, now: int) -> TokenBucket:
        """Return the bucket of a client."""
        bucket = self._buckets.get(client)
        if bucket is None:
            if len(self._buckets) >= self._max:
                kept = {key: one for key, one in self._buckets.items() if not one.is_idle(now)}
                self._buckets, self._max = kept, max(_RATES_MIN, 2 * len(kept))
            bucket = self._buckets[client] = TokenBucket(self._windows)
        return bucket
