"""The counters of a server and of its connections, which the four-letter words show."""

from __future__ import annotations


class Latencies:
    """Packets of a connection or of the server, and how long requests waited for their reply. Times are ms."""

    __slots__ = (
        "answered",
        "latency_last",
        "latency_max",
        "latency_min",
        "latency_sum",
        "received",
        "sent",
    )

    def __init__(self) -> None:
        self.received = 0
        """Requests, with the first one of a connection."""
        self.sent = 0
        """Replies and events."""
        self.answered = 0
        """Requests whose latency is in `latency_sum`."""
        self.latency_min = 0
        self.latency_max = 0
        self.latency_last = 0
        self.latency_sum = 0

    def add_latencies(self, count: int, total: int, lowest: int, highest: int) -> None:
        """Count `count` answered requests with these latencies."""
        self.latency_min = lowest if not self.answered else min(self.latency_min, lowest)
        self.latency_max = max(self.latency_max, highest)
        self.latency_last = lowest
        self.latency_sum += total
        self.answered += count

    def average(self) -> float:
        """Return the mean latency; 0 if there is none."""
        return self.latency_sum / self.answered if self.answered else 0.0


class Counters(Latencies):
    """The counters of the whole server."""

    __slots__ = (
        "bytes_received",
        "bytes_sent",
        "connections_refused",
        "events",
        "flush_ms",
        "flush_ms_max",
        "flushes",
        "sessions_expired",
        "writes",
    )

    def __init__(self) -> None:
        super().__init__()
        self.bytes_received = 0
        self.bytes_sent = 0
        self.connections_refused = 0
        self.sessions_expired = 0
        self.writes = 0
        """Answered requests that have used up a zxid."""
        self.events: dict[int, int] = dict.fromkeys(range(1, 5), 0)
        """Kind of event → number of events that were sent."""
        self.flushes = 0
        self.flush_ms = 0
        self.flush_ms_max = 0

    def add_flush(self, took_ms: int) -> None:
        """Count a flush of the log."""
        self.flushes += 1
        self.flush_ms += took_ms
        self.flush_ms_max = max(self.flush_ms_max, took_ms)


class ReplyBatch:
    """The replies and events that one connection sends together, with the arrival times of the requests."""

    __slots__ = (
        "bytes",
        "earliest",
        "is_last",
        "latest",
        "packets",
        "requests",
        "sum_of_arrivals",
        "writes",
    )

    def __init__(self) -> None:
        self.packets: list[bytes] = []
        self.bytes = 0
        self.is_last = False
        """True if the connection is closed after this output."""
        self.requests = 0
        self.writes = 0
        """How many of the requests have used up a zxid."""
        self.earliest = 0
        self.latest = 0
        self.sum_of_arrivals = 0

    def count(self, requests: int, writes: int, now: int) -> None:
        """Count requests that arrived at `now`. Later calls must not have an earlier `now`."""
        if not self.requests:
            self.earliest = now
        self.latest = now
        self.requests += requests
        self.writes += writes
        self.sum_of_arrivals += requests * now

    def add_to(self, counters: Latencies, now: int) -> None:
        """Add these replies and events, sent at `now`, to the counters."""
        counters.sent += len(self.packets)
        if self.requests:
            total = now * self.requests - self.sum_of_arrivals
            counters.add_latencies(self.requests, total, now - self.latest, now - self.earliest)
