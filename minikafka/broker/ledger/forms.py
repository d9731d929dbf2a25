"""The form of each kind of ledger line: the fields that writers give, and on which readers rely.

`LedgerWriter` refuses a line without a field of its form, and the reader skips such a line as damaged, so that no
reader meets a missing field. A line may have further fields (docs/ledger.md).

A form maps names to types. A nested form stands for an object with these fields, and a list with one form for a list
of such objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from minikafka.broker.ledger.record import (
    ANSWER,
    BROKER,
    DECISION,
    EFFECT,
    ELECTION,
    EVENT,
    GROUP,
    ISR,
    LOST,
    REQUEST,
    RESPONSE,
    RETRY,
    STATE_CHANGE,
    STEP,
    WRITE,
)
from minikafka.deciders.groups import commands

Form: TypeAlias = Mapping[str, Any]

_NONE: Final[Mapping[str, Any]] = MappingProxyType({})
_LIST: Final = list | tuple
_NUMBER: Final = int | None
_TEXT: Final = str | None

EVERY: Final[Form] = {"time": int, "broker": int, "n": int, "kind": str, "cause": str}
"""The fields of every line."""


class LineForm(NamedTuple):
    """The form of one kind of line.

    `variants`: further fields of a line, chosen by the value of the field `by`. `optional`: fields that a line may
    lack, but whose values must have these types.
    """

    fields: Form
    by: str = ""
    variants: Mapping[str, Form] = _NONE
    optional: Form = _NONE


_LEADERSHIP: Final[Form] = {"leader": int, "leader_epoch": int, "isr": _LIST, "partitions": dict}
_MEMBER: Final[Form] = {"member": str, "instance": _TEXT, "client": _TEXT, "host": str}
_MOVE: Final[Form] = {"source": str, "target": str, "epoch": int}
_CHANGE: Final[Form] = {"operation": str, "sender": int, "receiver": int, "epoch": int}
_LINK: Final[Form] = {"to": _NUMBER, "use": str, "address": str}
_GENERATION: Final[Form] = {"members": int, "leader": str, "leader_instance": _TEXT}

FORMS: Final[Mapping[str, LineForm]] = {
    EVENT: LineForm(
        {"event": str},
        "event",
        {
            "ControllerElected": {"brokers": dict, "deletions": _LIST},
            "BrokersChanged": {"brokers": dict},
            "BrokerSuspected": {"of": int, "broker_epoch": int, "evidence": str},
            "SuspicionEnded": {"of": int, "broker_epoch": int},
            "DeletionsChanged": {"topics": _LIST},
            "ControlledShutdownRequested": {"ticket": int, "of": int, "broker_epoch": int},
            "ElectionRequested": {"ticket": int, "unclean": bool},
        },
        optional={"brokers": dict, "removed": _LIST, "targets": _LIST},
    ),
    STEP: LineForm({"operation": str, "step": str, "partitions": dict}),
    DECISION: LineForm(
        {"verdict": str, "machine": str, "partitions": dict},
        "verdict",
        {
            "choose": {"leader": int, "leader_epoch": int, "isr": _LIST},
            "move": {"to": str},
            "refuse": {"reason": str},
            "illegal": {"from": str, "to": str},
        },
        optional={"replica": int, "leader": int, "leader_epoch": int, "isr": _LIST},
    ),
    WRITE: LineForm(
        {
            "check": {"path": str, "version": int},
            "outcome": str,
            "zxid": _NUMBER,
            "operations": [
                {"op": str, "path": str, "expected": _NUMBER, "actual": _NUMBER, "data": _TEXT}
            ],
        }
    ),
    REQUEST: LineForm(
        {"to": int, "request": str, "broker_epoch": int, "queued": int, "states": _LIST},
        "request",
        {
            "LeaderAndIsr": {"states": [_LEADERSHIP]},
            "UpdateMetadata": {"states": [_LEADERSHIP], "live_brokers": _LIST},
            "StopReplica": {"states": [{"delete": bool, "leader_epoch": int, "partitions": dict}]},
        },
    ),
    RETRY: LineForm({"to": int, "request": str, "attempt": int, "error": str}),
    RESPONSE: LineForm({"from": int, "request": str, "error": int, "errors": dict}),
    ANSWER: LineForm(
        {"ticket": int, "results": [{"code": str, "message": str, "partitions": dict}]}
    ),
    EFFECT: LineForm(
        {"phase": str, "request": str, "from": int, "controller_epoch": int},
        "phase",
        {"received": {"partitions": dict}, "completed": {"error": int}, "failed": {"error": str}},
        optional={
            "results": [{"became": str, "error": int, "leader_epoch": int, "partitions": dict}]
        },
    ),
    ISR: LineForm(
        {
            "topic": str,
            "partition": int,
            "change": str,
            "leader_epoch": int,
            "before": _LIST,
            "isr": _LIST,
            "expected": int,
            "actual": _NUMBER,
            "zxid": _NUMBER,
            "outcome": str,
            "error": str,
        }
    ),
    ELECTION: LineForm(
        {"outcome": str, "epoch": int, "zk_version": _NUMBER, "controller": int, "reason": str},
        "outcome",
        {"took over": {"former": int, "former_epoch": int}},
    ),
    BROKER: LineForm(
        {"fact": str},
        "fact",
        {
            "registered": {"broker_epoch": int},
            "stopping": {"controlled": bool},
            "stopped": {"controlled": bool},
            "connection lost": {"to": int},
            "probed": {"to": int, "broker_epoch": int, "outcome": str},
            "link broken": {**_LINK, "error": str},
            "link works again": _LINK,
            "log directory failed": {"error": str, "partitions": dict},
            "controlled shutdown asked": {"attempt": int},
            "controlled shutdown answered": {"attempt": int},
        },
    ),
    STATE_CHANGE: LineForm(
        {"fact": str, "topic": str, "partition": int, "text": str},
        "fact",
        {
            "move": _MOVE,
            "illegal": _MOVE,
            "refuse": {"reason": str},
            "requested": _CHANGE,
            "received": _CHANGE,
            "completed": _CHANGE,
            "refused": _CHANGE,
        },
    ),
    GROUP: LineForm(
        {"fact": str, "group": str, "generation": int},
        "fact",
        {
            commands.MEMBER_ADDED: {**_MEMBER, "reason": _TEXT},
            commands.MEMBER_REMOVED: {**_MEMBER, "trigger": str, "reason": _TEXT},
            commands.MEMBER_REPLACED: {**_MEMBER, "replaced": str},
            commands.PREPARING: {"trigger": str, "member": str, "instance": _TEXT, "members": int},
            commands.COMPLETING: {
                **_GENERATION,
                "protocol": _TEXT,
                "joining_ms": int,
                "last": str,
                "last_instance": _TEXT,
            },
            commands.STABLE: {
                **_GENERATION,
                "assigning_ms": int,
                "writing_ms": int,
                "rebalance_ms": int,
            },
            commands.EMPTY: {"joining_ms": int},
            commands.DEAD: {"trigger": str},
            commands.APPEND_FAILED: {"what": str, "error": int},
            commands.COMMIT_REFUSED: {
                "member": str,
                "instance": _TEXT,
                "of_generation": int,
                "error": int,
                "count": int,
            },
            commands.LOADED: {"members": int, "offsets": int},
            commands.UNLOADED: {"members": int},
        },
    ),
    LOST: LineForm({"lines": int, "error": str}),
}


def misfit(kind: str, fields: Mapping[str, Any], checked: int | None = None) -> str:
    """Return the name of a field that does not fit the form of the line's kind; "" if all do.

    `fields`: the fields of the line, with or without those of every line. A line of an unknown kind fits. `checked`:
    the number of objects to check in a list, which may have thousands (None: all).
    """
    form = FORMS.get(kind)
    if form is None:
        return ""
    found = _misfit(fields, form.fields, checked)
    if not found and form.variants:
        found = _misfit(fields, form.variants.get(fields[form.by], {}), checked)
    if not found and form.optional:
        given = {name: one for name, one in form.optional.items() if name in fields}
        found = _misfit(fields, given, checked)
    return found


def _misfit(fields: Mapping[str, Any], form: Form, checked: int | None) -> str:
    for name, wanted in form.items():
        if name not in fields or not _fits(fields[name], wanted, checked):
            return name
    return ""


def _fits(value: Any, wanted: Any, checked: int | None) -> bool:
    if isinstance(wanted, Mapping):
        return isinstance(value, Mapping) and not _misfit(value, wanted, checked)
    if isinstance(wanted, list):
        return isinstance(value, _LIST) and all(
            _fits(one, wanted[0], checked) for one in value[:checked]
        )
    return isinstance(value, wanted)
