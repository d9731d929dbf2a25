"""What a server and its connections count, for the four-letter words."""

from __future__ import annotations


class Counters:
    """Packets and latencies of the server, or of one connection. Times are ms."""

    __slots__ = ("answered", "latency_max", "latency_min", "latency_sum", "received", "sent")

    def __init__(self) -> None:
        self.received = 0
        """Requests, without the first one of a connection."""
        self.sent = 0
        """Replies and events."""
        self.answered = 0
        """Requests whose latency is in `latency_sum`."""
        self.latency_min = 0
        self.latency_max = 0
        self.latency_sum = 0

    def add_latencies(self, count: int, total: int, lowest: int, highest: int) -> None:
        """Count `count` answered requests with these latencies."""
        self.latency_min = lowest if not self.answered else min(self.latency_min, lowest)
        self.latency_max = max(self.latency_max, highest)
        self.latency_sum += total
        self.answered += count

    def average(self) -> float:
        """Return the mean latency; 0 if there is none."""
        return self.latency_sum / self.answered if self.answered else 0.0


class Output:
    """What one connection sends together: replies and events, and when their requests arrived."""

    __slots__ = ("bytes", "earliest", "is_last", "latest", "packets", "requests", "sum_of_arrivals")

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self.bytes = 0
        self.is_last = False
        """True if the connection is closed after this output."""
        self.requests = 0
        self.earliest = 0
        self.latest = 0
        self.sum_of_arrivals = 0

    def count(self, requests: int, now: int) -> None:
        """Count requests that arrived at `now`, which does not decrease."""
        if not self.requests:
            self.earliest = now
        self.latest = now
        self.requests += requests
        self.sum_of_arrivals += requests * now

    def add_to(self, counters: Counters, now: int) -> None:
        """Add what is sent at `now` to the counters."""
        counters.sent += len(self.packets)
        if self.requests:
            total = now * self.requests - self.sum_of_arrivals
            counters.add_latencies(self.requests, total, now - self.latest, now - self.earliest)
