"""The actions that harm connections, disks and sessions: the commands of `minikafka faults`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final

from minikafka.tools.console.errors import invalid
from minikafka.tools.console.views.arguments import CHOICE, INTEGER, TEXT, Action, Argument, Values

_PEER: Final = re.compile(r"[0-9]{1,9}|clients|zookeeper")
_ENDS: Final = (
    Argument("a", TEXT, "id of a broker, clients or zookeeper"),
    Argument("b", TEXT, "id of a broker, clients or zookeeper"),
)
_BETWEEN: Final = (
    *_ENDS,
    Argument("direction", CHOICE, "one: only what the first sends", False, ("both", "one")),
    Argument(
        "link", CHOICE, "kind of connections", False, ("all", "control", "fetch", "zookeeper")
    ),
)
_BROKER: Final = Argument("broker", INTEGER, "id of the broker")
_MS: Final = Argument("ms", INTEGER, "milliseconds")


def _ends(values: Values) -> list[str]:
    found = [values[name].lower() for name in ("a", "b") if values[name]]
    for end in found:
        if not _PEER.fullmatch(end):
            raise invalid(f"{end!r} is neither the id of a broker nor clients nor zookeeper")
    return found


def _options(values: Values) -> list[str]:
    given = [(name, values.get(name, "")) for name in ("direction", "link", "ms")]
    return [word for name, value in given if value for word in (f"--{name}", value)]


def _between(
    verb: str, effect: str, arguments: tuple[Argument, ...] = _BETWEEN, *, is_dangerous: bool = True
) -> Action:
    """Return an action between two ends. `effect`: with {a} and {b}."""
    return Action(
        verb,
        arguments,
        lambda v: ["faults", verb, *_ends(v), *_options(v)],
        lambda v: [effect.format(a=v["a"], b=v["b"])],
        on_machine=True,
        needs_faults=True,
        is_dangerous=is_dangerous,
    )


def _of_broker(
    verb: str,
    effect: str,
    arguments: tuple[Argument, ...] = (),
    words: Callable[[Values], Sequence[str]] = _options,
    *,
    needs_faults: bool = True,
) -> Action:
    """Return an action that harms one broker. `effect`: with {broker}."""
    return Action(
        verb,
        (_BROKER, *arguments),
        lambda v: ["faults", verb, v["broker"], *words(v)],
        lambda v: [effect.format(broker=v["broker"])],
        on_machine=True,
        needs_faults=needs_faults,
        is_dangerous=True,
    )


FAULTS: Final = (
    _between("cut", "nothing passes between {a} and {b}; it arrives after the fault"),
    _of_broker("cut-clients", "broker {broker} is cut off from all clients"),
    _between("delay", "each byte between {a} and {b} arrives later", (*_BETWEEN, _MS)),
    _between("drop", "all bytes between {a} and {b} are lost"),
    _between("reset", "the open connections between {a} and {b} break; new ones work"),
    _of_broker("fill-disk", "the disk of broker {broker} is full"),
    _of_broker("slow-sync", "each fsync of broker {broker} takes longer", (_MS,)),
    _of_broker("fail-sync", "each fsync of broker {broker} fails"),
    _of_broker(
        "expire-session", "the ZooKeeper session of broker {broker} ends", needs_faults=False
    ),
    Action(
        "heal",
        tuple(Argument(one.name, one.kind, one.label, False) for one in _ENDS),
        lambda v: ["faults", "heal", *_ends(v)],
        lambda v: ["the faults of connections end, and without ends those of disks too"],
        on_machine=True,
        needs_faults=True,
    ),
)
