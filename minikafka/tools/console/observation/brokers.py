"""The row of one broker in the console: its state, its counts, and the rates between two of its answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from minikafka.base.errors import KafkaError
from minikafka.tools.console.observation.members import (
    DOWN,
    PAUSED,
    RUNNING,
    UNREACHABLE,
    BrokerMember,
)

_RATES: Final = {
    "records_in": "MessagesInPerSec",
    "bytes_in": "BytesInPerSec",
    "bytes_out": "BytesOutPerSec",
}
"""The rates of a row, and the counters of the broker from which they are computed."""
_RATE_MS: Final = 1_000
"""Shortest time over which a rate is computed."""
_REASONS: Final = {
    DOWN: "it has no process",
    PAUSED: "its process is paused (SIGSTOP)",
    UNREACHABLE: "the other brokers do not list it as alive",
}


@dataclass(frozen=True, slots=True)
class ShownBroker:
    """One broker. `reason`: why it does not answer, "" if it does. `shown`: the object that viewers get."""

    state: str
    reason: str
    shown: dict[str, Any]
    counters: Mapping[str, float]
    """The counters at `counted_ms`, the monotonic time from which the next rates are computed."""
    counted_ms: int


def broker_row(
    member: BrokerMember,
    answer: Mapping[str, Any] | OSError | KafkaError | None,
    counts: Sequence[int] | None,
    former: ShownBroker | None,
    now: int,
) -> ShownBroker:
    """Return the row of a broker. `counts`: led, preferred and all replicas. `former`: its row before."""
    state, reason = _state(member, answer)
    led, preferred, replicas = counts or (0, 0, 0)
    known: Mapping[str, Any] = {} if answer is None or isinstance(answer, Exception) else answer
    counters = {name: known.get("metrics", {}).get(bean, 0) for name, bean in _RATES.items()}
    rates, counted, since = _rates(counters if known else {}, former, now)
    shown = {
        "id": member.id,
        "host": member.host,
        "port": member.port,
        "rack": member.rack,
        "state": state,
        "reason": reason,
        "leaders": led,
        "preferred": preferred,
        "replicas": replicas,
        "session": known.get("session_state"),
        **rates,
    }
    return ShownBroker(state, reason, shown, counted, since)


def _state(
    member: BrokerMember, answer: Mapping[str, Any] | OSError | KafkaError | None
) -> tuple[str, str]:
    if member.state != RUNNING:
        return member.state, _REASONS.get(member.state, "")
    if isinstance(answer, TimeoutError):
        return UNREACHABLE, "it does not answer in time"
    if isinstance(answer, Exception):
        return UNREACHABLE, getattr(answer, "detail", "") or str(answer)
    return RUNNING, ""


def _rates(
    counters: Mapping[str, float], former: ShownBroker | None, now: int
) -> tuple[dict[str, int | None], Mapping[str, float], int]:
    """Return the rates per second, and the counters and time from which the next rates are computed."""
    unknown = dict[str, int | None].fromkeys(_RATES)
    if not counters:
        return unknown, {}, now
    if former is None or not former.counters:
        return unknown, counters, now
    passed = now - former.counted_ms
    if passed < _RATE_MS:
        return {name: former.shown[name] for name in _RATES}, former.counters, former.counted_ms
    rates = {
        name: max(0, round((count - former.counters[name]) * 1_000 / passed))
        for name, count in counters.items()
    }
    return {**rates}, counters, now
