"""The actions of the console: for each its arguments, the command that it equals, and what it does.

Invariant: an action does nothing that its command does not do, and its command has no option that it does not show.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final

from minikafka.tools.console.errors import invalid
from minikafka.tools.console.views.arguments import (
    BROKER,
    CHOICE,
    INTEGER,
    PARTITION,
    TEXT,
    TOPIC,
    ZOOKEEPER,
    Action,
    Argument,
    Values,
)
from minikafka.tools.console.views.fault_actions import FAULTS

_BROKERS: Final = re.compile(r"[0-9]{1,9}(,[0-9]{1,9})*")
_PROCESS: Final = (Argument("broker", BROKER, "broker or ZooKeeper"),)
_PLANNED: Final = ("kill", "stop", "restart")
"""The actions after which the broker is away, which the controller can plan."""
_HALTED: Final = {
    "stop": "ZooKeeper stops: nothing can be elected, created or changed without it",
    "restart": "ZooKeeper stops and starts: nothing can be elected, created or changed meanwhile",
}
"""What these actions do to ZooKeeper, which has no leaderships."""


def _of_process(verb: str, effect: str, *, is_dangerous: bool = True) -> Action:
    """Return an action on a broker or ZooKeeper. `effect`: with {} in the place of its name."""
    return Action(
        verb,
        _PROCESS,
        lambda v: [verb, v["broker"].lower()],
        lambda v: [
            _HALTED[verb]
            if verb in _HALTED and _is_zookeeper(v)
            else effect.format("ZooKeeper" if _is_zookeeper(v) else f"broker {v['broker']}")
        ],
        _kill_plan if verb in _PLANNED else lambda _: None,
        on_machine=True,
        is_dangerous=is_dangerous,
    )


def _is_zookeeper(values: Values) -> bool:
    return values["broker"].lower() == ZOOKEEPER


def _kill_plan(values: Values) -> Sequence[str] | None:
    return None if _is_zookeeper(values) else ["plan", "kill-broker", values["broker"]]


def _named(values: Values) -> str:
    return f"{values['topic']}-{values['partition']}"


def _election(values: Values) -> list[str]:
    return ["elect", f"--{values['type'] or 'preferred'}", _named(values)]


def _election_effects(values: Values) -> list[str]:
    if values["type"] == "unclean":
        return [
            f"{_named(values)} gets any live replica as its leader if it has none",
            "acknowledged records that only other replicas have are lost",
        ]
    return [f"the first replica of {_named(values)} becomes its leader if it is in the ISR"]


def _replicas(values: Values) -> list[str]:
    text = values["replicas"].replace(" ", "")
    if not _BROKERS.fullmatch(text):
        raise invalid(f"replicas={text!r} is not a list of broker ids such as 1,2,3")
    return [_named(values), "--replicas", text]


def _abort(values: Values) -> list[str]:
    name = values["transactional_id"]
    if name.startswith("-"):
        raise invalid(f"transactional_id={name!r} begins like an option: use the command line")
    if name:
        return ["transactions", "fence", name]
    if not (values["topic"] and values["partition"] and values["start_offset"]):
        raise invalid("name a transactional_id, or topic, partition and start_offset")
    return ["transactions", "abort", _named(values), "--start-offset", values["start_offset"]]


def _abort_effects(values: Values) -> list[str]:
    if values["transactional_id"]:
        return ["the open transaction is aborted in all its partitions, and its producer is fenced"]
    return [f"the transaction is aborted in {_named(values)}, and nowhere else"]


def _create(values: Values) -> list[str]:
    words = ["topics", "create", values["topic"]]
    words += ["--partitions", values["partitions"]] if values["partitions"] else []
    words += (
        ["--replication-factor", values["replication_factor"]]
        if values["replication_factor"]
        else []
    )
    for pair in _pairs("configs", values["configs"]):
        words += ["--config", pair]
    return words


def _pairs(name: str, text: str) -> list[str]:
    """Return the parts of `k=v,k=v`. A part without `=` belongs to the value before it."""
    found: list[str] = []
    for part in filter(None, text.split(",")):
        if "=" in part:
            found.append(part.strip())
        elif found:
            found[-1] += f",{part}"
        else:
            raise invalid(f"{name}={text!r} is not a list such as key=value,key=value")
    return found


def _set(values: Values) -> list[str]:
    return [*_configs("set", values), f"{values['name']}={values['value']}"]


def _configs(verb: str, values: Values) -> list[str]:
    if values["name"].startswith("-") or "=" in values["name"]:
        raise invalid(f"name={values['name']!r} is not the name of a setting")
    return ["configs", verb, "--topic", values["topic"]]


def _produce(values: Values) -> list[str]:
    return ["produce", values["topic"], "--json"]


def _record(values: Values) -> str:
    record: dict[str, Any] = {"key": values["key"] or None, "value": values["value"]}
    if values["partition"]:
        record["partition"] = int(values["partition"])
    pairs = (pair.partition("=") for pair in _pairs("headers", values["headers"]))
    if headers := [{"key": name, "value": value} for name, _, value in pairs]:
        record["headers"] = headers
    return json.dumps(record, ensure_ascii=False) + "\n"


_ONE: Final = (Argument("topic", TOPIC), Argument("partition", PARTITION))
_TOPIC: Final = (Argument("topic", TOPIC),)
_NAME: Final = Argument("name", TEXT, "setting")

ACTIONS: Final = {
    action.name: action
    for action in (
        _of_process("kill", "{} gets SIGKILL: it neither hands over anything nor closes its files"),
        _of_process("pause", "{} gets SIGSTOP: it keeps its connections and answers nothing"),
        _of_process("resume", "{} gets SIGCONT and continues", is_dangerous=False),
        _of_process("stop", "{} hands over its leaderships, closes its logs and stops"),
        _of_process("start", "{} starts with its former ports and data", is_dangerous=False),
        _of_process("restart", "{} stops, and starts with its former ports and data"),
        Action(
            "elect",
            (*_ONE, Argument("type", CHOICE, "election", False, ("preferred", "unclean"))),
            _election,
            _election_effects,
            lambda v: ["plan", *_election(v)],
            is_dangerous=True,
        ),
        Action(
            "reassign",
            (*_ONE, Argument("replicas", TEXT, "new brokers, the preferred leader first")),
            lambda v: ["reassign", *_replicas(v), "--no-wait"],
            lambda v: [f"{_named(v)} moves to the brokers {v['replicas']}"],
            lambda v: ["plan", "reassign", *_replicas(v)],
            is_dangerous=True,
        ),
        Action(
            "cancel-reassignment",
            _ONE,
            lambda v: ["reassign", _named(v), "--cancel"],
            lambda v: [f"{_named(v)} returns to its original replicas"],
        ),
        Action(
            "abort-transaction",
            (
                Argument("transactional_id", TEXT, required=False),
                Argument("topic", TOPIC, required=False),
                Argument("partition", PARTITION, required=False),
                Argument("start_offset", INTEGER, required=False),
            ),
            _abort,
            _abort_effects,
            is_dangerous=True,
        ),
        Action(
            "create-topic",
            (
                *_TOPIC,
                Argument("partitions", INTEGER, required=False),
                Argument("replication_factor", INTEGER, required=False),
                Argument("configs", TEXT, "settings, as key=value,key=value", False),
            ),
            _create,
            lambda v: [f"the topic {v['topic']} is created"],
        ),
        Action(
            "alter-topic",
            (*_TOPIC, Argument("partitions", INTEGER, "new number of partitions")),
            lambda v: ["topics", "alter", v["topic"], "--partitions", v["partitions"]],
            lambda v: [
                f"the topic {v['topic']} gets {v['partitions']} partitions",
                "keys move to other partitions, and the number cannot be reduced",
            ],
            is_dangerous=True,
        ),
        Action(
            "delete-topic",
            _TOPIC,
            lambda v: ["topics", "delete", v["topic"]],
            lambda v: [f"the topic {v['topic']} and all its records are deleted"],
            lambda v: ["plan", "delete-topic", v["topic"]],
            is_dangerous=True,
        ),
        Action(
            "set-config",
            (*_TOPIC, _NAME, Argument("value", TEXT)),
            _set,
            lambda v: [f"the topic {v['topic']} gets {v['name']}={v['value']}"],
        ),
        Action(
            "delete-config",
            (*_TOPIC, _NAME),
            lambda v: [*_configs("delete", v), v["name"]],
            lambda v: [f"{v['name']} of the topic {v['topic']} gets its default value again"],
        ),
        Action(
            "produce",
            (
                *_TOPIC,
                Argument("value", TEXT, required=False),
                Argument("key", TEXT, required=False),
                Argument("partition", PARTITION, required=False),
                Argument("headers", TEXT, "headers, as name=value,name=value", False),
            ),
            _produce,
            lambda v: [f"one record is appended to {v['topic']}"],
            input=_record,
        ),
        *FAULTS,
    )
}
"""Every action by its name."""
