"""The causal chains of a partition: events, decisions, writes, requests and effects, in causal order.

A chain is one controller event, and all its effects on the partition. The event's id identifies the chain. Each
ISR change by a leader, and each failure of a log directory, is a separate chain. The input is the lines from
`broker.ledger.reader`; the module does no I/O. Invariant: a chain's lines are in causal order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from minikafka.base.errors import ErrorCode, code_name
from minikafka.base.model import TopicPartition
from minikafka.base.names import listed
from minikafka.broker.ledger.reader import name_of
from minikafka.broker.ledger.record import (
    ANSWER,
    BROKER,
    DECISION,
    EFFECT,
    ELECTION,
    EVENT,
    ISR,
    REQUEST,
    RESPONSE,
    RETRY,
    STATE_CHANGE,
    STEP,
    WRITE,
    partitions_of,
)

Line = Mapping[str, Any]
_UPDATE_METADATA: Final = "UpdateMetadata"
REASSIGNMENT: Final = "reassignment"
"""The `machine` of a decision that refuses a target in `/admin/reassign_partitions`; also an operation's name."""
_GRANTED: Final = ErrorCode.NONE.name
_NAMES_MAX: Final = 5
"""Maximum number of partitions in one sentence."""


@dataclass(slots=True)
class Chain:
    """A causal chain: the lines about one cause and its effects on the partition."""

    cause: str
    """The id of the event, EPOCH-NUMBER. For a chain without an event: the name of its first line, BROKER#N."""
    time: int
    title: str
    lines: list[Line] = field(default_factory=list)
    summary: str = ""
    """The chain in one sentence (`tools/explain/summary.py`); "" for a chain without a noteworthy change."""

    def as_json(self) -> dict[str, Any]:
        """Return the chain as JSON-able values. Each line has all its fields, and its description as `text`."""
        return {
            "cause": self.cause,
            "time": self.time,
            "title": self.title,
            "summary": self.summary,
            "lines": [dict(line) | {"text": describe(line)} for line in self.lines],
        }


def chains(lines: Iterable[Line], tp: TopicPartition) -> list[Chain]:
    """Return the causal chains that have lines about the partition, oldest first."""
    events: dict[str, list[Line]] = {}
    found: dict[str, Chain] = {}
    asked: set[tuple[str, int, str]] = set()
    for line in lines:
        cause, kind = line["cause"], line["kind"]
        if kind in (EVENT, ELECTION):
            events.setdefault(cause, []).append(line)
            continue
        if not _concerns(line, tp, asked):
            continue
        if kind == REQUEST:
            asked.add((cause, line["to"], line["request"]))
        id_ = cause or name_of(line)
        if id_ not in found:
            first = events.get(id_, [])
            started = first[0]["time"] if first else line["time"]
            title = _title(first[0]) if first else _title(line)
            found[id_] = Chain(id_, started, title, [*first])
        found[id_].lines.append(line)
    return list(found.values())


def _concerns(line: Line, tp: TopicPartition, asked: set[tuple[str, int, str]]) -> bool:
    kind = line["kind"]
    if kind in (RESPONSE, RETRY):
        broker = line["from"] if kind == RESPONSE else line["to"]
        return (line["cause"], broker, line["request"]) in asked
    if kind == EFFECT and line["request"] == _UPDATE_METADATA:
        return (line["cause"], line["broker"], _UPDATE_METADATA) in asked
    return names_partition(line, tp)


def names_partition(line: Line, tp: TopicPartition) -> bool:
    """True if the line concerns this partition, or (for a write) its topic as a whole."""
    kind = line["kind"]
    if kind == WRITE:
        return any(_is_about(operation["path"], tp) for operation in line["operations"])
    if kind in (ISR, STATE_CHANGE):
        return (line["topic"], line["partition"]) == tp
    groups = line.get("states") or line.get("results") or (line,)
    return any(
        tp.partition in (group.get("partitions") or {}).get(tp.topic, ()) for group in groups
    )


def names_number(line: Line, tp: TopicPartition) -> bool:
    """True if the line shows that this partition exists or existed.

    A refused request names a partition that may not exist.
    """
    if refusal_of(line, tp):
        return False
    if line["kind"] == WRITE:
        node = f"/{tp.topic}/partitions/{tp.partition}"
        paths = [f"{operation['path']}/" for operation in line["operations"]]
        return any(f"{node}/" in path for path in paths)
    return line["kind"] not in (EVENT, ELECTION) and names_partition(line, tp)


def refusal_of(line: Line, tp: TopicPartition) -> str:
    """Return why the controller refused an administrator's request about this partition; "" if it did not."""
    if not names_partition(line, tp):
        return ""
    if line["kind"] == DECISION and line["machine"] == REASSIGNMENT:
        return str(line["reason"])
    for result in line["results"] if line["kind"] == ANSWER else ():
        if tp.partition in result["partitions"].get(tp.topic, ()) and result["code"] != _GRANTED:
            return ": ".join(filter(None, (result["code"], result["message"])))
    return ""


def _is_about(path: str, tp: TopicPartition) -> bool:
    """True if the path is a node of the partition, or of the topic as a whole."""
    parts = path.split("/")
    if tp.topic not in parts:
        return False
    within = parts[parts.index(tp.topic) + 1 :]
    return len(within) < 2 or within[1] == str(tp.partition)


# Text.


def _title(line: Line) -> str:
    kind = line["kind"]
    if kind == EVENT:
        return f"{line['event']}{_event_details(line)}"
    if kind == ELECTION:
        return _election_title(line)
    return describe(line)


def _election_title(line: Line) -> str:
    if line["outcome"] != "took over":
        return f"broker {line['broker']} {line['outcome']} the election of epoch {line['epoch']}"
    return (
        f"broker {line['broker']} took over from controller {line['former']} in epoch {line['epoch']}: "
        f"{line['reason']}"
    )


def _event_details(line: Line) -> str:
    details = []
    if "brokers" in line:
        details.append(f"live brokers {ids(sorted(map(int, line['brokers'])))}")
    if "of" in line:
        details.append(f"broker {line['of']}")
    if line.get("suspects"):
        details.append(f"suspected {ids(sorted(map(int, line['suspects'])))}")
    if line.get("evidence"):
        details.append(line["evidence"])
    details += [
        f"{name} {', '.join(line[name])}"
        for name in ("topics", "removed", "deletions")
        if line.get(name)
    ]
    if line.get("added"):
        details.append(f"new topics {', '.join(line['added'])}")
    if line.get("targets"):
        details.append("; ".join(_target(*target) for target in line["targets"][:5]))
    return f" ({'; '.join(details)})" if details else ""


def _target(topic: str, partition: int, replicas: Sequence[int] | None) -> str:
    to = "cancelled" if replicas is None else f"to {ids(replicas)}"
    return f"{topic}-{partition} {to}"


def ids(brokers: Iterable[int]) -> str:
    """Format broker ids as Kafka does (1,2,3); `none` if the list is empty."""
    return ",".join(map(str, brokers)) or "none"


def join_names(partitions: Iterable[TopicPartition]) -> str:
    """Return at most _NAMES_MAX partitions of users' topics, and the numbers of all other partitions, as text."""
    return listed(partitions, _NAMES_MAX)


def _leadership(fields: Line) -> str:
    if fields.get("leader") is None or not fields.keys() >= {"leader_epoch", "isr"}:
        return ""
    return f"leader {fields['leader']}, epoch {fields['leader_epoch']}, ISR {ids(fields['isr'])}"


def _describe_decision(line: Line) -> str:
    if line["machine"] == REASSIGNMENT:
        return f"refused the reassignment: {line['reason']}"
    subject = f"replica {line['replica']}" if "replica" in line else "partition"
    moved = f" {line['from']} -> {line['to']}" if line.keys() >= {"from", "to"} else ""
    election = f" by {line['election']}" if "election" in line else ""
    reason = f": the {line['machine']} {line['reason']}" if "reason" in line else ""
    leadership = f": {_leadership(line)}" if _leadership(line) else ""
    verb = {"choose": "chosen for the", "move": "", "refuse": "refused:", "illegal": "illegal:"}
    words = f"{verb.get(line['verdict'], line['verdict'])} {subject}".strip()
    return f"{words}{moved}{election}{leadership}{reason}"


def _describe_write(line: Line) -> str:
    zxid = f", zxid {line['zxid']:#x}" if line["zxid"] else ""
    paths = [_operation(operation) for operation in line["operations"]]
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    error = f" ({line['error']})" if line.get("error") else ""
    return f"{line['outcome']}{error}: {', '.join(paths[:3])}{more}{zxid}"


def _operation(operation: Line) -> str:
    path = f"{operation['op']} {operation['path']}"
    if operation["op"] == "create":
        return path
    actual = "" if operation["actual"] is None else f" -> {operation['actual']}"
    return f"{path} at version {operation['expected']}{actual}"


def _describe_request(line: Line) -> str:
    waiting = f" ({line['queued']} queued)" if line["queued"] > 1 else ""
    states = [_describe_state(state) for state in line["states"][:_NAMES_MAX]]
    more = len(line["states"]) - _NAMES_MAX
    also = f"; and {more} other states" if more > 0 else ""
    named = f": {'; '.join(states)}{also}" if states else ""
    return f"{line['request']} to broker {line['to']}{waiting}{named}"


def _describe_state(state: Line) -> str:
    """Return a description of the partitions that have the same state in a request.

    For a StopReplica request, it states whether the replicas are stopped or deleted; else the leadership.
    """
    names = join_names(partitions_of(state["partitions"]))
    if "delete" in state:
        return f"{'delete' if state['delete'] else 'stop'} {names}"
    return f"{names} ({_leadership(state)})" if _leadership(state) else names


def _describe_response(line: Line) -> str:
    head = f"{line['request']} answered by broker {line['from']}"
    whole = [code_name(line["error"])] if line["error"] else []
    some = [
        f"{code_name(code)} for {join_names(partitions_of(partitions))}"
        for code, partitions in (line.get("errors") or {}).items()
    ]
    return ": ".join([head, ", ".join(whole + some)]) if whole or some else head


def _describe_effect(line: Line) -> str:
    head = f"{line['request']} of controller {line['from']} {line['phase']}"
    if line["phase"] == "failed" or line.get("error"):
        return f"{head}: {code_name(line['error'])}"
    became = {
        f"{result['became']}" + (f" ({code_name(result['error'])})" if result["error"] else "")
        for result in line.get("results", ())
    }
    return f"{head}: {', '.join(sorted(became))}" if became else head


def _describe_isr(line: Line) -> str:
    version = f"version {line['expected']} -> {line['actual']}"
    zxid = f", zxid {line['zxid']:#x}" if line["zxid"] else ""
    error = f" ({line['error']})" if line["error"] else ""
    return f"ISR {ids(line['before'])} -> {ids(line['isr'])}, {line['outcome']}{error}, {version}{zxid}"


_DESCRIBE: Final[dict[str, Callable[[Line], str]]] = {
    EVENT: _title,
    ELECTION: _title,
    STEP: lambda line: f"{line['operation']}.{line['step']}",
    DECISION: _describe_decision,
    WRITE: _describe_write,
    REQUEST: _describe_request,
    RETRY: lambda line: (
        f"no answer from broker {line['to']} to {line['request']}, "
        f"attempt {line['attempt']}: {line['error']}"
    ),
    RESPONSE: _describe_response,
    ANSWER: lambda line: ", ".join(result["code"] for result in line["results"]),
    EFFECT: _describe_effect,
    ISR: _describe_isr,
    STATE_CHANGE: lambda line: str(line["text"]),
    BROKER: lambda line: f"{line['fact']} {line.get('error', line.get('to', ''))}".strip(),
}


def describe(line: Line) -> str:
    """Return a description of the line, without the time and the broker of the line."""
    describe_kind = _DESCRIBE.get(line["kind"])
    return describe_kind(line) if describe_kind else line["kind"]


def only_about(line: Line, tp: TopicPartition) -> Line:
    """Return a copy of the ledger line without the parts about partitions other than `tp`."""
    if line["kind"] == WRITE:
        operations = [o for o in line["operations"] if _is_about(o["path"], tp)]
        return {**line, "operations": operations}
    narrowed = dict(line)
    for name in ("states", "results"):
        if line.get(name):
            narrowed[name] = [
                {**group, "partitions": {tp.topic: [tp.partition]}}
                for group in line[name]
                if tp.partition in group["partitions"].get(tp.topic, ())
            ]
    return narrowed
