"""The output of `status` on a terminal or in a pipe: lines of text from its JSON object.

Partitions of users' topics come first. The partitions of an internal topic are one line with their number, unless
the topic was named on the command line. Colours show states; they are not printed in a pipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Final

from rich.text import Text

from minikafka.base.coordination import LEADERS
from minikafka.base.names import is_internal
from minikafka.base.zookeeper import shown_kind
from minikafka.tools.cli.terminal.columns import Cell, Column, lay_out

_GOOD: Final = "green"
_BAD: Final = "bold red"
_DOUBTFUL: Final = "yellow"
_FAINT: Final = "dim"

Row = Mapping[str, Any]


def _state(state: str) -> Cell:
    return state, _GOOD if state == "up" else _BAD


def _in_sync(row: Row) -> Cell:
    isr = ",".join(map(str, row["isr"])) or "none"
    return isr if set(row["isr"]) >= set(row["replicas"]) else (isr, _DOUBTFUL)


def _leader(row: Row) -> Cell:
    if row["leader"] is None:
        return "none", _BAD
    return str(row["leader"]) if row["opening"] is None else (f"{row['leader']} opening", _DOUBTFUL)


def _high_watermark(row: Row) -> Cell:
    """Return the high watermark, with the last stable offset if open transactions hold that back."""
    high_watermark, stable = row["high_watermark"], row["last_stable_offset"]
    if stable is None or stable == high_watermark:
        return _or_none(high_watermark)
    return f"{high_watermark}, stable {stable}", _DOUBTFUL


def _dirt(compaction: Mapping[str, Any] | None) -> Cell:
    """Return the dirty ratio of a compacted log in percent; "" for other logs."""
    if compaction is None:
        return ""
    ratio = compaction["dirty_ratio"]
    shown = "none" if ratio is None else f"{ratio:.0%}"
    return (f"{shown}, uncleanable", _DOUBTFUL) if compaction["uncleanable"] else shown


def _utc(timestamp: int | None) -> str:
    """Return a time in Unix ms as text: date and time in UTC."""
    if timestamp is None:
        return "none"
    try:
        return f"{datetime.fromtimestamp(timestamp / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (OverflowError, OSError, ValueError):  # a producer may send any number as a timestamp
        return str(timestamp)


def _or_none(value: object) -> str:
    return "none" if value is None else str(value)


def _whole(row: Row) -> Row:
    return row


_BROKER: Final = (
    Column("broker", "", itemgetter("id")),
    Column("address", "", lambda row: f"{row['host']}:{row['port']}"),
    Column("state", "", itemgetter("state"), text=_state),
    Column("pid", "", itemgetter("pid"), text=_or_none),
    Column("epoch", "", itemgetter("broker_epoch"), text=_or_none, drop=2),
    Column("queued", "", itemgetter("backlog"), text=_or_none, drop=1),
    Column("log directory", "", itemgetter("log_dir"), is_below=True),
)
_PARTITION: Final = (
    Column("partition", "", lambda row: f"{row['topic']}-{row['partition']}"),
    Column("leader", "", _whole, text=_leader),
    Column("epoch", "", itemgetter("leader_epoch"), drop=1),
    Column("replicas", "", lambda row: ",".join(map(str, row["replicas"]))),
    Column("ISR", "", _whole, text=_in_sync),
    Column("LEO", "", itemgetter("log_end_offset"), text=_or_none),
    Column("HW", "", _whole, text=_high_watermark, drop=5),
    Column("bytes", "", itemgetter("size"), text=_or_none, drop=3),
    Column("from (UTC)", "", itemgetter("earliest_timestamp"), text=_utc, drop=2),
    Column("dirty", "", itemgetter("compaction"), text=_dirt, drop=4),
)
"""The last column is shown if a log is compacted."""


def status_lines(shown: Mapping[str, Any], topics: Sequence[str], width: int | None) -> list[Text]:
    """Return the lines of `status`. `topics`: the topics that the user named. `width`: None if the output is a pipe."""
    pid = shown["zookeeper_pid"]
    lines = [
        Text(f"bootstrap   {shown['bootstrap']}"),
        Text(
            f"zookeeper   {shown['zookeeper']}{f'  pid {pid}' if pid else ''}"
            f"  {shown_kind(shown['zookeeper_kind'])}"
        ),
        Text(_coordination(shown)),
    ]
    for cause in shown["causes"]:
        remedy = f"; {cause['remedy']}" if cause["remedy"] else ""
        lines.append(Text.assemble("problem     ", (f"{cause['text']}{remedy}", _BAD)))
    lines += lay_out(_BROKER, shown["brokers"], width).lines
    return lines + _partitions(shown["partitions"], topics, width)


def _coordination(shown: Mapping[str, Any]) -> str:
    """Return the line about the controller, or about the mode without a controller."""
    if shown["coordination"] == LEADERS:
        return "controller  none: the leaders of the partitions coordinate (mode leaders)"
    epoch = _or_none(shown["controller_epoch"])
    return f"controller  {_or_none(shown['controller'])}  epoch {epoch}"


def _partitions(found: Sequence[Row], topics: Sequence[str], width: int | None) -> list[Text]:
    is_folded = {
        row["topic"]: is_internal(row["topic"]) and row["topic"] not in topics for row in found
    }
    own = [row for row in found if not is_folded[row["topic"]]]
    lines: list[Text] = []
    if own:
        has_compacted = any(row["compaction"] for row in own)
        grid = lay_out(_PARTITION if has_compacted else _PARTITION[:-1], own, width)
        lines = grid.lines
        if grid.hidden:
            lines.append(Text(f"not shown in {width} columns: {', '.join(grid.hidden)}", _FAINT))
    for topic in (topic for topic, folded in is_folded.items() if folded):
        lines.append(_folded(topic, [row for row in found if row["topic"] == topic]))
    return lines


def _folded(topic: str, rows: Sequence[Row]) -> Text:
    """Return one line about all partitions of an internal topic."""
    line = Text(f"{topic}: {len(rows)} partition{'' if len(rows) == 1 else 's'}")
    problems = list(_problems(rows))
    for text, style in problems:
        line.append(", ").append(text, style)
    if not problems:
        return line.append(" in sync")
    return line.append(f"; minikafka status {topic} lists them", _FAINT)


def _problems(rows: Sequence[Row]) -> Iterator[tuple[str, str]]:
    """Yield the number of partitions with each kind of problem, with the style of the text."""
    behind = sum(not set(row["isr"]) >= set(row["replicas"]) for row in rows)
    leaderless = sum(row["leader"] is None for row in rows)
    opening = sum(row["opening"] is not None for row in rows)
    stuck = sum(bool(row["compaction"] and row["compaction"]["uncleanable"]) for row in rows)
    if leaderless:
        yield f"{leaderless} without a leader that answers", _BAD
    if opening:
        yield f"{opening} opening", _DOUBTFUL
    if behind:
        yield f"{behind} not in sync", _DOUBTFUL
    if stuck:
        yield f"{stuck} uncleanable", _DOUBTFUL
