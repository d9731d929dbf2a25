"""Kafka's RequestMetrics: the number of requests of each kind, and their time (ms) from arrival to response."""

from __future__ import annotations

from typing import Final

from minikafka.base.metrics import Histogram, Metrics
from minikafka.kafka.wire.versions import FETCH, NAMES, PRODUCE, SERVED
from minikafka.storage.replication.purgatory import Purgatory

_RATE: Final = "kafka.network:type=RequestMetrics,name=RequestsPerSec"
_RATE_HELP: Final = "Requests answered."
_TIME: Final = "kafka.network:type=RequestMetrics,name=TotalTimeMs"
_TIME_HELP: Final = (
    "Milliseconds from arrival to response. Produce: at most one value per connection and ms."
)

_THROTTLE_TIME: Final = "kafka.network:type=RequestMetrics,name=ThrottleTimeMs"
_THROTTLE_TIME_HELP: Final = "Milliseconds that clients had to wait because of a quota."


class RequestMetrics:
    """The metrics of every kind of request. `times` has a histogram for each API key but Produce and Fetch,
    `throttle_times` one for each API key.

    Fetches of followers are counted but not timed, because they wait on the leader until it has records.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.times = {api: self._timed(NAMES[api]) for api in SERVED if api not in (PRODUCE, FETCH)}
        self.throttle_times = {
            api: metrics.histogram(_THROTTLE_TIME, _THROTTLE_TIME_HELP, request=NAMES[api])
            for api in SERVED
        }
        self.consumer_fetches = self._timed("FetchConsumer")
        self.follower_fetches = metrics.counter(_RATE, _RATE_HELP, request="FetchFollower")

    def add_produce(self, purgatory: Purgatory) -> None:
        """Register the metrics of Produce requests. The purgatory counts and times these requests."""
        self._metrics.computed_counter(
            _RATE, _RATE_HELP, lambda: purgatory.finished_produces, request="Produce"
        )
        self._metrics.histogram(_TIME, _TIME_HELP, purgatory.produce_times, request="Produce")

    def _timed(self, request: str) -> Histogram:
        times = self._metrics.histogram(_TIME, _TIME_HELP, request=request)
        self._metrics.computed_counter(_RATE, _RATE_HELP, lambda: times.count, request=request)
        return times
