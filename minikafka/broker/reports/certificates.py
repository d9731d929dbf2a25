"""When the certificates of a broker expire, as a metric and for `minikafka cluster health`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from minikafka.base.encryption import Expiry, Tls
from minikafka.base.metrics import MetricKind, Metrics, Sample
from minikafka.base.ports import Clock

DAY_MS: Final = 86_400_000
NEAR_MS: Final = 30 * DAY_MS
"""Time before its end at which a certificate is reported, so that it can be replaced at leisure."""


class CertificateReport:
    """The expiry of all certificates in use. `in_use()` returns the encryption of listeners and connections."""

    def __init__(self, in_use: Callable[[], Iterable[Tls]], clock: Clock) -> None:
        self._in_use = in_use
        self._clock = clock

    def register(self, metrics: Metrics) -> None:
        """Register the gauge of the time that is left for each file."""
        metrics.collect(
            "kafka.server:type=KafkaServer,name=CertificateExpiryMs",
            MetricKind.GAUGE,
            "Milliseconds until the first certificate in the file expires; negative after that.",
            self._samples,
        )

    def near(self) -> list[dict[str, Any]]:
        """Return the certificates that have expired or expire soon, for the call `state`."""
        limit = self._now() + NEAR_MS
        return [each._asdict() for each in sorted(self._all()) if each.ends_ms <= limit]

    def _samples(self) -> Iterator[Sample]:
        now, ends = self._now(), dict[str, int]()
        for each in self._all():
            ends[each.source] = min(each.ends_ms, ends.get(each.source, each.ends_ms))
        for source, ends_ms in sorted(ends.items()):
            yield Sample({"file": source}, ends_ms - now)

    def _now(self) -> int:
        """Return the time of the machine, by which OpenSSL checks certificates."""
        return self._clock.wall_ms() - self._clock.advanced_ms

    def _all(self) -> set[Expiry]:
        """Return each certificate once: several listeners may have the same files."""
        return {each for tls in self._in_use() for each in tls.expiries}
