"""Write the tables and pictures of docs/two-designs.md: `python -m benchmarks.two_designs_page FILE`.

FILE has the output of `python -m benchmarks.two_designs --json FILE`. A later line replaces parts of earlier lines.
Each table replaces the text between two comments that name it. The rest of the page is written by hand.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.report import ROOT

PAGE: Final = ROOT / "docs" / "two-designs.md"
IMAGES: Final = ROOT / "docs" / "images"
COLOURS: Final = ("#0072B2", "#56B4E9", "#D55E00")
"""Colours of the variants, which colour-blind people can distinguish."""
COSTS: Final = {
    "reads": "reads",
    "writes": "writes",
    "bytes_in": "bytes received",
    "bytes_out": "bytes sent",
    "notifications": "watch events",
    "watches": "watches afterwards",
}
Figures = Mapping[str, Mapping[str, Any]]


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.two_designs_page", description=__doc__
    )
    parser.add_argument("file", type=Path, help="output of `python -m benchmarks.two_designs`")
    figures = read(parser.parse_args().file)
    page = PAGE.read_text()
    for name, table in tables(figures).items():
        page = replaced(page, name, table)
    PAGE.write_text(page)
    draw(figures)


def read(path: Path) -> dict[str, Any]:
    """Return the figures of each part: the latest in the file."""
    found: dict[str, Any] = {}
    for line in path.read_text().splitlines():
        found |= json.loads(line).get("two designs", {})
    return found


def replaced(page: str, name: str, table: str) -> str:
    """Return the page with `table` between the comments that name it. Raises ValueError without the comments."""
    pattern = rf"<!-- {name} -->\n.*?<!-- end -->"
    if not re.search(pattern, page, re.DOTALL):
        raise ValueError(f"the page has no place for the table {name!r}")
    block = f"<!-- {name} -->\n{table}\n<!-- end -->"
    return re.sub(pattern, lambda _: block, page, count=1, flags=re.DOTALL)


def tables(figures: Figures) -> dict[str, str]:
    """Return the table of each part that was measured, as Markdown."""
    made = {
        "deaths": deaths,
        "cost": cost,
        "work": work,
        "start": start,
        "pauses": pauses,
        "idle": idle,
        "watches": watches,
    }
    return {name: make(figures) for name, make in made.items() if name in figures}


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def deaths(figures: Figures) -> str:
    """Return the times to the next write: median and maximum in milliseconds, by what the killed broker was."""
    rows = []
    for variant, found in figures["deaths"].items():
        for kind, seconds in found["seconds"].items():
            rows.append([kind, variant, len(seconds), *_ms(seconds)])
    rows.sort(key=lambda row: str(row[0]))
    for variant, found in figures.get("ten", {}).items():
        rows.append(["ten leaders at once", variant, len(found["seconds"]), *_ms(found["seconds"])])
    return table(["the killed broker was", "mode", "kills", "median (ms)", "most (ms)"], rows)


def _ms(seconds: Sequence[float]) -> tuple[str, str]:
    return f"{statistics.median(seconds) * 1_000:,.0f}", f"{max(seconds) * 1_000:,.0f}"


def cost(figures: Figures) -> str:
    """Return what one death costs, a column per variant."""
    found = figures["cost"]
    names = {**COSTS, "brokers that act": "brokers that act"}
    rows = [[text, *(f"{one[key]:,}" for one in found.values())] for key, text in names.items()]
    return table(["one leader of one partition dies", *found], rows)


def work(figures: Figures) -> str:
    """Return time and cost of each operation and size, for each mode."""
    rows = []
    for operation in ("create", "reassign", "delete"):
        for mode, found in figures["work"].items():
            for size, one in found[operation].items():
                counts = (f"{one[key]:,}" for key in list(COSTS)[:5])
                rows.append([operation, f"{int(size):,}", mode, f"{one['seconds']:.2f} s", *counts])
    rows.sort(key=lambda row: (row[0], int(row[1].replace(",", "")), row[2]))
    return table(["operation", "partitions", "mode", "time", *list(COSTS.values())[:5]], rows)


def start(figures: Figures) -> str:
    """Return time and cost of a start, for each mode."""
    rows = [
        [mode, f"{one['seconds']:.1f} s", *(f"{one[key]:,}" for key in COSTS)]
        for mode, one in figures["start"].items()
    ]
    return table(["mode", "time", *COSTS.values()], rows)


def pauses(figures: Figures) -> str:
    """Return the longest times without a write, a column per variant."""
    found = figures["pauses"]
    kinds = next(iter(found.values()))
    rows = [[kind, *(f"{one[kind]:.2f} s" for one in found.values())] for kind in kinds]
    return table(["longest time without a write", *found], rows)


def idle(figures: Figures) -> str:
    """Return the requests of an idle broker, for each mode and number of partitions."""
    rows = [
        [mode, f"{int(size):,}", one["reads"], f"{one['bytes_out']:,.0f}"]
        for mode, found in figures["idle"].items()
        for size, one in found.items()
    ]
    return table(["mode", "partitions", "requests per broker and second", "bytes sent"], rows)


def watches(figures: Figures) -> str:
    """Return the watches with and without the topics, for each mode."""
    rows = [
        [mode, f"{one['topics']:,}", f"{one['without topics']:,}", f"{one['with topics']:,}"]
        for mode, one in figures["watches"].items()
    ]
    return table(["mode", "topics", "watches without topics", "watches with topics"], rows)


def draw(figures: Figures) -> None:
    """Draw the times of deaths and of work, as PNG."""
    from matplotlib.figure import Figure

    if "deaths" in figures:
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        axes = figure.subplots()
        for place, (variant, found) in enumerate(figures["deaths"].items()):
            seconds = found["seconds"].get("leader", []) + found["seconds"].get(
                "controller and leader", []
            )
            axes.scatter(
                seconds, [place] * len(seconds), color=COLOURS[place], alpha=0.6, label=variant
            )
        axes.set_yticks(range(len(figures["deaths"])), list(figures["deaths"]))
        axes.set_xscale("log")
        axes.set_xlabel("seconds from the kill of a leader to the next acknowledged write")
        figure.savefig(IMAGES / "two-designs-deaths.png", dpi=110)
    if "work" in figures:
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        axes = figure.subplots(1, 3, sharey=True)
        for one, operation in zip(axes, ("create", "reassign", "delete"), strict=True):
            for place, (mode, found) in enumerate(figures["work"].items()):
                sizes = [int(size) for size in found[operation]]
                seconds = [each["seconds"] for each in found[operation].values()]
                one.loglog(sizes, seconds, "os"[place] + "-", color=COLOURS[place * 2], label=mode)
            one.set_title(operation)
            one.set_xlabel("partitions")
        axes[0].set_ylabel("seconds")
        axes[0].legend()
        figure.savefig(IMAGES / "two-designs-work.png", dpi=110)


if __name__ == "__main__":
    main()
