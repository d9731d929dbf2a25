"""The output of `status`: its columns, and from them its JSON object and its lines of text.

Partitions of users' topics come first. The partitions of an internal topic are one line with their number, unless
the topic was named on the command line. Colours show states; they are not printed in a pipe.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any, Final, NamedTuple

from rich.text import Text

from minikafka.base.coordination import LEADERS
from minikafka.base.model import TopicPartition
from minikafka.base.names import ids, is_internal
from minikafka.base.zookeeper import shown_kind
from minikafka.tools.cli.terminal.columns import Cell, Column, lay_out, objects
from minikafka.tools.cluster.observation.causes import Cause
from minikafka.tools.cluster.observation.state import ObservedPartition

_GOOD: Final = "green"
_BAD: Final = "bold red"
_DOUBTFUL: Final = "yellow"
_FAINT: Final = "dim"


class BrokerRow(NamedTuple):
    """One broker.

    `process`: its object in `up --json`. `answer`: what the broker reports, None if it does not answer. `backlog`:
    number of controller requests that it has not answered yet (C39), None without a channel to the broker; in the mode
    leaders, number of requests in the broker's queue.
    """

    process: Mapping[str, Any]
    state: str
    answer: Mapping[str, Any] | None
    backlog: int | None


class PartitionRow(NamedTuple):
    """One partition."""

    tp: TopicPartition
    view: ObservedPartition


class StatusView(NamedTuple):
    """What `status` shows.

    `processes`: the object of `up --json`. `controller` and `controller_state`: the id of the broker that is the active
    controller, and the state that it reports; None if no active controller answers, and in the mode leaders.
    `controller_epoch`: the last known epoch.
    """

    processes: Mapping[str, Any]
    controller: int | None
    controller_epoch: int | None
    controller_state: object
    brokers: Sequence[BrokerRow]
    partitions: Sequence[PartitionRow]
    causes: Sequence[Cause]
    unseen: Sequence[str] = ()
    """What could not be seen over a network, as sentences."""


def _state(state: str) -> Cell:
    return state, _GOOD if state == "up" else _BAD


def _in_sync(view: ObservedPartition) -> Cell:
    isr = ids(view.isr) or "none"
    return isr if _is_in_sync(view) else (isr, _DOUBTFUL)


def _is_in_sync(view: ObservedPartition) -> bool:
    return set(view.isr) >= set(view.replicas)


def _leader(view: ObservedPartition) -> Cell:
    if view.leader is None:
        return "none", _BAD
    return str(view.leader) if view.opening is None else (f"{view.leader} opening", _DOUBTFUL)


def _high_watermark(view: ObservedPartition) -> Cell:
    """Return the high watermark, with the last stable offset if open transactions hold that back."""
    high_watermark, stable = view.high_watermark, view.last_stable_offset
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


def _or_unknown(value: object) -> str:
    return "not known" if value is None else str(value)


def _address(process: Mapping[str, Any]) -> str:
    return f"{process['host']}:{process['port']}" if process["host"] else "not known"


_BROKER: Final = (
    Column("broker", "", lambda row: row.process["id"]),
    Column("address", "", lambda row: _address(row.process)),
    Column("state", "state", attrgetter("state"), text=_state),
    Column("pid", "", lambda row: row.process["pid"], text=_or_none),
    Column(
        "epoch",
        "broker_epoch",
        lambda row: row.answer["broker_epoch"] if row.answer else None,
        text=_or_none,
        drop=2,
    ),
    Column("queued", "backlog", attrgetter("backlog"), text=_or_none, drop=1),
    Column("", "metrics", lambda row: row.answer.get("metrics") if row.answer else None),
    Column(
        "log directory", "", lambda row: row.process["log_dir"], text=_or_unknown, is_below=True
    ),
)
"""The other keys of the JSON come from `up --json`. `metrics`: the broker's gauges under Kafka's names."""
_PARTITION: Final = (
    Column("partition", "", attrgetter("tp")),
    Column("", "topic", attrgetter("tp.topic")),
    Column("", "partition", attrgetter("tp.partition")),
    Column("leader", "", attrgetter("view"), text=_leader),
    Column("", "leader", attrgetter("view.leader")),
    Column("epoch", "leader_epoch", attrgetter("view.leader_epoch"), drop=1),
    Column("replicas", "replicas", attrgetter("view.replicas"), text=ids),
    Column("ISR", "", attrgetter("view"), text=_in_sync),
    Column("", "isr", attrgetter("view.isr")),
    Column("", "available", attrgetter("view.is_available")),
    Column("", "opening", attrgetter("view.opening")),
    Column("", "log_start_offset", attrgetter("view.log_start_offset")),
    Column("LEO", "log_end_offset", attrgetter("view.log_end_offset"), text=_or_none),
    Column("HW", "", attrgetter("view"), text=_high_watermark, drop=5),
    Column("", "high_watermark", attrgetter("view.high_watermark")),
    Column("", "last_stable_offset", attrgetter("view.last_stable_offset")),
    Column("bytes", "size", attrgetter("view.size"), text=_or_none, drop=3),
    Column(
        "from (UTC)", "earliest_timestamp", attrgetter("view.earliest_timestamp"), text=_utc, drop=2
    ),
    Column("dirty", "compaction", attrgetter("view.compaction"), text=_dirt, drop=4),
)
"""`compaction` has the dirty ratio of a compacted log, whether it is being cleaned, and why it is uncleanable.

The last column is shown if a log is compacted.
"""


def as_json(view: StatusView) -> dict[str, Any]:
    """Return the JSON object of `status`: that of `up --json` plus controller, brokers, partitions and causes."""
    reported = objects(_BROKER, view.brokers)
    brokers = [{**row.process, **more} for row, more in zip(view.brokers, reported, strict=True)]
    return {
        **view.processes,
        "brokers": brokers,
        "controller": view.controller,
        "controller_epoch": view.controller_epoch,
        "controller_state": view.controller_state,
        "partitions": objects(_PARTITION, view.partitions),
        "causes": [cause.as_json() for cause in view.causes],
        "unseen": list(view.unseen),
    }


def status_lines(view: StatusView, topics: Sequence[str], width: int | None) -> list[Text]:
    """Return the lines of `status`. `topics`: the topics that the user named. `width`: None if the output is a pipe."""
    shown = view.processes
    lines = [
        Text(f"bootstrap   {shown['bootstrap']}"),
        Text(_zookeeper(shown)),
        Text(_coordination(view)),
    ]
    lines += [Text.assemble("problem     ", (cause.sentence, _BAD)) for cause in view.causes]
    lines += lay_out(_BROKER, view.brokers, width).lines
    lines += _partitions(view.partitions, topics, width)
    return [*lines, *(Text(f"not seen    {sentence}", _FAINT) for sentence in view.unseen)]


def _zookeeper(shown: Mapping[str, Any]) -> str:
    if shown["zookeeper_kind"] is None:
        return f"zookeeper   {_or_unknown(shown['zookeeper'])}  as the brokers name it"
    pid = shown["zookeeper_pid"]
    kind = shown_kind(shown["zookeeper_kind"])
    return f"zookeeper   {shown['zookeeper']}{f'  pid {pid}' if pid else ''}  {kind}"


def _coordination(view: StatusView) -> str:
    """Return the line about the controller, or about the mode without a controller."""
    if view.processes["coordination"] == LEADERS:
        return "controller  none: the leaders of the partitions coordinate (mode leaders)"
    return f"controller  {_or_none(view.controller)}  epoch {_or_none(view.controller_epoch)}"


def _partitions(
    found: Sequence[PartitionRow], topics: Sequence[str], width: int | None
) -> list[Text]:
    is_folded = {
        row.tp.topic: is_internal(row.tp.topic) and row.tp.topic not in topics for row in found
    }
    own = [row for row in found if not is_folded[row.tp.topic]]
    lines: list[Text] = []
    if own:
        has_compacted = any(row.view.compaction for row in own)
        grid = lay_out(_PARTITION if has_compacted else _PARTITION[:-1], own, width)
        lines = grid.lines
        if grid.hidden:
            lines.append(Text(f"not shown in {width} columns: {', '.join(grid.hidden)}", _FAINT))
    for topic in (topic for topic, folded in is_folded.items() if folded):
        lines.append(_folded(topic, [row.view for row in found if row.tp.topic == topic]))
    return lines


def _folded(topic: str, views: Sequence[ObservedPartition]) -> Text:
    """Return one line about all partitions of an internal topic."""
    line = Text(f"{topic}: {len(views)} partition{'' if len(views) == 1 else 's'}")
    problems = list(_problems(views))
    for text, style in problems:
        line.append(", ").append(text, style)
    if not problems:
        return line.append(" in sync")
    return line.append(f"; minikafka status {topic} lists them", _FAINT)


def _problems(views: Sequence[ObservedPartition]) -> Iterator[tuple[str, str]]:
    """Yield the number of partitions with each kind of problem, with the style of the text."""
    behind = sum(not _is_in_sync(view) for view in views)
    leaderless = sum(view.leader is None for view in views)
    opening = sum(view.opening is not None for view in views)
    stuck = sum(bool(view.compaction and view.compaction["uncleanable"]) for view in views)
    if leaderless:
        yield f"{leaderless} without a leader that answers", _BAD
    if opening:
        yield f"{opening} opening", _DOUBTFUL
    if behind:
        yield f"{behind} not in sync", _DOUBTFUL
    if stuck:
        yield f"{stuck} uncleanable", _DOUBTFUL
