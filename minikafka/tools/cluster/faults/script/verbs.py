"""The verbs of fault scripts and their arguments, as a table. Pure: it knows names and types, and harms nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from minikafka.tools.cluster.proxy.rules import DELAY_MAX_MS, DIRECTIONS, LINKS

CONTROLLER: Final = "controller"
HELD: Final = "held"
"""The broker that is blocked at the step of the trigger."""
LEADER: Final = re.compile(r"leader of (?P<topic>[A-Za-z0-9._-]+)-(?P<partition>[0-9]{1,9})")


class VerbArgument(NamedTuple):
    """One argument of a verb. `kind`: BROKER, PROCESS, PEER, TEXT, FLAG, the allowed words, or the allowed numbers."""

    kind: str | tuple[str, ...] | range
    is_required: bool = True


class Verb(NamedTuple):
    """One verb. `lasts`: it begins something that can end. `is_held`: this lasts until it is ended, else for good.

    `needs_faults`: it works only in a cluster that was started with faults. `either`: names of which exactly one is
    needed.
    """

    arguments: Mapping[str, VerbArgument]
    lasts: bool = False
    is_held: bool = False
    needs_faults: bool = False
    either: tuple[str, ...] = ()


BROKER: Final = "broker"
PROCESS: Final = "process"
PEER: Final = "peer"
TEXT: Final = "text"
FLAG: Final = "flag"
NUMBER_MAX: Final = 2**60

_MS: Final = {"ms": VerbArgument(range(1, DELAY_MAX_MS + 1))}
_FREE_BYTES: Final = {"free_bytes": VerbArgument(range(NUMBER_MAX + 1), False)}
_LINKED: Final[Mapping[str, VerbArgument]] = {
    "direction": VerbArgument(DIRECTIONS, False),
    "link": VerbArgument(LINKS, False),
}
_ENDS: Final = {"a": VerbArgument(PEER), "b": VerbArgument(PEER)}
_PROCESS: Final = {"broker": VerbArgument(PROCESS)}
_BROKER: Final = {"broker": VerbArgument(BROKER)}
_LOG_DIR: Final = {"log_dir": VerbArgument(TEXT, False)}
VERBS: Final[Mapping[str, Verb]] = {
    "kill": Verb(_PROCESS, lasts=True),
    "stop": Verb(_PROCESS, lasts=True),
    "pause": Verb(_PROCESS, lasts=True),
    "resume": Verb(_PROCESS),
    "start": Verb(_PROCESS),
    "restart": Verb(_BROKER),
    "cut": Verb({**_ENDS, **_LINKED}, True, True, True),
    "cut_clients": Verb({**_BROKER, "direction": _LINKED["direction"]}, True, True, True),
    "delay": Verb({**_ENDS, **_MS, **_LINKED}, True, True, True),
    "drop": Verb({**_ENDS, **_LINKED}, True, True, True),
    "reset": Verb({**_ENDS, **_LINKED}, needs_faults=True),
    "fill_disk": Verb({**_BROKER, **_LOG_DIR, **_FREE_BYTES}, True, True, True),
    "slow_sync": Verb({**_BROKER, **_MS, **_LOG_DIR}, True, True, True),
    "fail_sync": Verb({**_BROKER, **_LOG_DIR}, True, True, True),
    "expire_session": Verb(_BROKER),
    "lose_coordinator": Verb(
        {
            "group": VerbArgument(TEXT, False),
            "transactional_id": VerbArgument(TEXT, False),
            "pause": VerbArgument(FLAG, False),
        },
        lasts=True,
        either=("group", "transactional_id"),
    ),
}
"""Every verb by its name in Python. The command line has `-` in the place of `_`, which scripts may have too."""
