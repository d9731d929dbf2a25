"""The figures of `benchmarks.attacks`, as Markdown tables and as values for JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from benchmarks.attack_clients import Traffic
from benchmarks.two_designs_page import table

QUIET = "no attack"


class Flooded(NamedTuple):
    """The figures of one flood: the broker's memory in MB, and the other client's latencies in ms, sorted."""

    before_mb: float
    peak_mb: float
    latencies_ms: list[float]
    quiet_ms: list[float]
    """The other client's latencies on the same broker before the flood."""
    traffic: Traffic


class Burdened(NamedTuple):
    """The broker's memory in MB before and during one burst, and the number of refused requests."""

    name: str
    connections: int
    before_mb: float
    peak_mb: float
    refused: int | None
    """None if the burst has no requests that may be refused."""


class Figures(NamedTuple):
    """All figures of a run; those of the floods by name."""

    nothing_received: dict[str, Flooded]
    all_received: dict[str, Flooded]
    bursts: list[Burdened]
    groups: list[Burdened]
    ids: list[Burdened]

    def done(self) -> int:
        """Return the number of attacks that have figures."""
        return sum(len(rows) for rows in self)

    def quiet_ms(self) -> list[float]:
        """Return the other client's latencies on all brokers before the floods, sorted."""
        rows = (*self.nothing_received.values(), *self.all_received.values())
        return sorted(latency for row in rows for latency in row.quiet_ms)


def flood_line(row: Flooded) -> str:
    """Return the figures of a flood as text."""
    waits, before = row.latencies_ms, row.quiet_ms
    sent, received, closed = row.traffic
    return (
        f"{row.before_mb:.0f} MB before, {row.peak_mb:.0f} MB at most, other client p50 "
        f"{share(waits, 0.5):.2f} ms, p99 {share(waits, 0.99):.1f} ms, longest {waits[-1]:.1f} ms "
        f"(before p99 {share(before, 0.99):.1f} ms), sent {sent / 1e6:.1f} MB, "
        f"received {received / 1e6:.1f} MB, {closed} connections closed"
    )


def burst_line(row: Burdened) -> str:
    """Return the figures of a burst as text."""
    refused = "" if row.refused is None else f", {row.refused:,} refused"
    memory = f"{row.before_mb:.0f} MB before, {row.peak_mb:.0f} MB at most"
    return f"{row.name}, {row.connections} connections: {memory}{refused}"


def share(ordered: Sequence[float], part: float) -> float:
    """Return the quantile `part` of sorted figures."""
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)]


def tables(figures: Figures) -> dict[str, str]:
    """Return the Markdown table of each part that has figures."""
    made = {}
    if figures.nothing_received:
        made["floods"] = flood_table(figures)
    parts = {"bursts": figures.bursts, "groups": figures.groups, "producer ids": figures.ids}
    return made | {name: burst_table(rows) for name, rows in parts.items() if rows}


def flood_table(figures: Figures) -> str:
    """Return the table of all floods. A ratio is a p99, divided by the p99 without an attack."""
    quiet = figures.quiet_ms()
    rows = [[QUIET]]
    for part in (figures.nothing_received, figures.all_received):
        memory = max(row.before_mb for row in part.values())
        rows[0] += [f"{memory:.0f} MB", *_waits(quiet, quiet)]
    for name, row in figures.nothing_received.items():
        rows.append([name])
        for each in (row, figures.all_received[name]):
            rows[-1] += [f"{each.peak_mb:.0f} MB", *_waits(each.latencies_ms, quiet)]
    waits = ["p50, p99, longest (ms)", "p99 ratio"]
    head = ["50 connections send", "nothing received: memory", *waits]
    return table([*head, "all received: memory", *waits], rows)


def _waits(found: Sequence[float], quiet: Sequence[float]) -> tuple[str, str]:
    p99 = share(found, 0.99)
    return f"{share(found, 0.5):.2f}, {p99:.1f}, {found[-1]:.0f}", f"{p99 / share(quiet, 0.99):.1f}"


def burst_table(bursts: Sequence[Burdened]) -> str:
    """Return the table of the bursts, with a column of refused requests if some may be refused."""
    head = ["each connection sends", "connections", "memory before", "peak memory"]
    rows = [
        [row.name, row.connections, f"{row.before_mb:.0f} MB", f"{row.peak_mb:.0f} MB"]
        for row in bursts
    ]
    if bursts[0].refused is not None:
        head.append("refused requests")
        rows = [[*row, f"{burst.refused:,}"] for row, burst in zip(rows, bursts, strict=True)]
    return table(head, rows)


def facts(figures: Figures) -> dict[str, Any]:
    """Return the figures as values for JSON."""
    quiet = figures.quiet_ms()
    return {
        "quiet_p99_ms": round(share(quiet, 0.99), 3) if quiet else None,
        "nothing_received": _flood_facts(figures.nothing_received),
        "all_received": _flood_facts(figures.all_received),
        "bursts": _burst_facts((*figures.bursts, *figures.groups, *figures.ids)),
    }


def _flood_facts(rows: dict[str, Flooded]) -> dict[str, dict[str, float]]:
    return {
        name: {
            "before_mb": round(row.before_mb, 1),
            "peak_mb": round(row.peak_mb, 1),
            "p50_ms": round(share(row.latencies_ms, 0.5), 3),
            "p99_ms": round(share(row.latencies_ms, 0.99), 3),
            "longest_ms": round(row.latencies_ms[-1], 3),
            **row.traffic._asdict(),
        }
        for name, row in rows.items()
    }


def _burst_facts(rows: Iterable[Burdened]) -> dict[str, dict[str, float | None]]:
    return {
        f"{row.name}, {row.connections} connections": {
            "before_mb": round(row.before_mb, 1),
            "peak_mb": round(row.peak_mb, 1),
            "refused": row.refused,
        }
        for row in rows
    }
