"""The actions that harm connections, disks, sessions and coordinators: the commands of `minikafka faults`."""

from __future__ import annotations

import re
from typing import Final

from minikafka.tools.console.errors import invalid
from minikafka.tools.console.views.arguments import (
    CHOICE,
    INTEGER,
    SCRIPT,
    TEXT,
    Action,
    Argument,
    Values,
)

SCRIPT_S: Final = 3_600
"""Time for a fault script."""
_PEER: Final = re.compile(r"[0-9]{1,9}|clients|zookeeper")
_ENDS: Final = (
    Argument("a", TEXT, "id of a broker, clients or zookeeper"),
    Argument("b", TEXT, "id of a broker, clients or zookeeper"),
)
_DIRECTION: Final = Argument(
    "direction", CHOICE, "one: only what the first sends", False, ("both", "one")
)
_FROM_CLIENTS: Final = Argument(
    "direction", CHOICE, "one: only what clients send", False, ("both", "one")
)
_BETWEEN: Final = (
    *_ENDS,
    _DIRECTION,
    Argument(
        "link", CHOICE, "kind of connections", False, ("all", "control", "fetch", "zookeeper")
    ),
)
_BROKER: Final = Argument("broker", INTEGER, "id of the broker")
_MS: Final = Argument("ms", INTEGER, "milliseconds")
_LOG_DIR: Final = Argument("log_dir", TEXT, "only this log directory", False)
_STEP: Final = Argument("step", TEXT, "step, as operation.step")
_OPTIONS: Final = ("direction", "link", "ms", "log_dir", "free_bytes", "broker")


def _ends(values: Values) -> list[str]:
    found = [values[name].lower() for name in ("a", "b") if values[name]]
    for end in found:
        if not _PEER.fullmatch(end):
            raise invalid(f"{end!r} is neither the id of a broker nor clients nor zookeeper")
    return found


def _options(values: Values, *without: str) -> list[str]:
    given = [(name, values.get(name, "")) for name in _OPTIONS if name not in without]
    return [
        word for name, value in given if value for word in (f"--{name.replace('_', '-')}", value)
    ]


def _between(verb: str, effect: str, arguments: tuple[Argument, ...] = _BETWEEN) -> Action:
    """Return an action between two ends. `effect`: with {a} and {b}."""
    return Action(
        verb,
        arguments,
        lambda v: ["faults", verb, *_ends(v), *_options(v)],
        lambda v: [effect.format(a=v["a"], b=v["b"])],
        on_machine=True,
        needs_faults=True,
        is_dangerous=True,
    )


def _of_broker(
    verb: str, effect: str, arguments: tuple[Argument, ...] = (), *, needs_faults: bool = True
) -> Action:
    """Return an action that harms one broker. `effect`: with {broker}."""
    return Action(
        verb,
        (_BROKER, *arguments),
        lambda v: ["faults", verb, v["broker"], *_options(v, "broker")],
        lambda v: [effect.format(broker=v["broker"])],
        on_machine=True,
        needs_faults=needs_faults,
        is_dangerous=True,
    )


def _at_step(verb: str, effect: str, *, is_dangerous: bool = False) -> Action:
    """Return an action on a named step. `effect`: with {step}."""
    return Action(
        verb,
        (_STEP,),
        lambda v: ["faults", verb, _plain("step", v)],
        lambda v: [effect.format(step=v["step"])],
        on_machine=True,
        is_dangerous=is_dangerous,
    )


def _plain(name: str, values: Values) -> str:
    """Return an argument of a command that is no option. Raises RequestRefused."""
    if values[name].startswith("-"):
        raise invalid(f"{name}={values[name]!r} begins like an option: use the command line")
    return values[name]


def _coordinator(values: Values) -> list[str]:
    if bool(values["group"]) == bool(values["transactional_id"]):
        raise invalid("name either a group or a transactional_id")
    of = (
        [_plain("group", values)]
        if values["group"]
        else ["--transactional-id", values["transactional_id"]]
    )
    pause = ["--pause"] if values["how"] == "pause" else []
    return ["faults", "lose-coordinator", *of, *pause]


def _coordinator_effects(values: Values) -> list[str]:
    of = f"the group {values['group']}"
    if not values["group"]:
        of = f"the transactional id {values['transactional_id']}"
    if values["how"] == "pause":
        return [f"the broker that coordinates {of} is paused: its clients wait for their timeouts"]
    return [f"the broker that coordinates {of} gets SIGKILL: another one takes over"]


_SCRIPT: Final = Action(
    "run-faults",
    (Argument("script", SCRIPT, "script, with a table [[fault]] for each fault"),),
    lambda _: ["faults", "run", "-"],
    lambda _: ["each step begins at its time; one that hits nothing is an error (exit code 3)"],
    lambda _: ["faults", "run", "-", "--dry-run"],
    lambda v: v["script"] + "\n",
    on_machine=True,
    is_dangerous=True,
    limit_s=SCRIPT_S,
)

FAULTS: Final = (
    _between("cut", "nothing passes between {a} and {b}; it arrives after the fault"),
    _of_broker("cut-clients", "broker {broker} is cut off from all clients", (_FROM_CLIENTS,)),
    _between("delay", "each byte between {a} and {b} arrives later", (*_BETWEEN, _MS)),
    _between("drop", "all bytes between {a} and {b} are lost"),
    _between("reset", "the open connections between {a} and {b} break; new ones work"),
    _of_broker(
        "fill-disk",
        "the disk of broker {broker} is full",
        (Argument("free_bytes", INTEGER, "bytes that still fit", False), _LOG_DIR),
    ),
    _of_broker("slow-sync", "each fsync of broker {broker} takes longer", (_MS, _LOG_DIR)),
    _of_broker("fail-sync", "each fsync of broker {broker} fails", (_LOG_DIR,)),
    _of_broker(
        "expire-session", "the ZooKeeper session of broker {broker} ends", needs_faults=False
    ),
    Action(
        "lose-coordinator",
        (
            Argument("group", TEXT, required=False),
            Argument("transactional_id", TEXT, required=False),
            Argument("how", CHOICE, "what the broker gets", False, ("kill", "pause")),
        ),
        _coordinator,
        _coordinator_effects,
        on_machine=True,
        is_dangerous=True,
    ),
    _at_step(
        "hold",
        "each broker that reaches {step} blocks there until it is released",
        is_dangerous=True,
    ),
    _at_step("held", "the command waits until a broker blocks at {step}, and prints its id"),
    _at_step("release", "the brokers that block at {step} continue"),
    Action(
        "after",
        (
            Argument("api", TEXT, "API, such as Produce"),
            Argument("n", INTEGER, "number of requests"),
            Argument("broker", INTEGER, "only requests to this broker", False),
        ),
        lambda v: ["faults", "after", _plain("api", v), v["n"], *_options(v)],
        lambda v: [
            f"the command waits for {v['n']} further requests of {v['api']}",
            "the next one waits until the fault that you choose has begun, at most a second",
        ],
        on_machine=True,
        needs_faults=True,
    ),
    Action(
        "heal",
        tuple(Argument(one.name, one.kind, one.label, False) for one in _ENDS),
        lambda v: ["faults", "heal", *_ends(v)],
        lambda v: ["the faults of connections end, and without ends those of disks too"],
        on_machine=True,
        needs_faults=True,
    ),
    Action(
        "list-faults",
        (),
        lambda _: ["faults", "list"],
        lambda _: ["the faults in effect are listed, with what each has hit"],
        on_machine=True,
        needs_faults=True,
    ),
    _SCRIPT,
)
