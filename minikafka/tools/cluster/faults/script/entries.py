"""The entries of a fault script: read, and checked before anything is harmed. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from minikafka.base.errors import ConfigError
from minikafka.base.toml import read_toml
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.faults.names import nearest_names
from minikafka.tools.cluster.faults.script import verbs
from minikafka.tools.cluster.faults.script.verbs import VERBS, Verb, VerbArgument
from minikafka.tools.cluster.proxy.rules import CLIENTS, ZOOKEEPER, FaultRule, problem_of

TABLE: Final = "fault"
"""Each [[fault]] of a file is an entry."""
_SECONDS_MAX: Final = 86_400
_PLACES: Final = (CLIENTS, ZOOKEEPER)
_TIMES_MAX: Final = 1_000_000
_COMMON: Final = ("do", "for", "times", "gap")


class At(NamedTuple):
    """So many seconds after the start of the script."""

    seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:g} s after the start" if self.seconds else "at the start"


class AfterPrevious(NamedTuple):
    """So many seconds after the previous entry has ended."""

    seconds: float

    def __str__(self) -> str:
        return f"{self.seconds:g} s after the end of the previous entry"


class AfterRequests(NamedTuple):
    """After `n` further requests of an API have reached a broker (None: any)."""

    api: str
    n: int
    broker: int | None

    def __str__(self) -> str:
        at = "" if self.broker is None else f" at broker {self.broker}"
        return f"after {self.n} requests of {self.api}{at}"


class AtStep(NamedTuple):
    """When a broker blocks at this step. It continues when the fault has begun."""

    step: str

    def __str__(self) -> str:
        return f"when a broker blocks at the step {self.step}"


Trigger: TypeAlias = At | AfterPrevious | AfterRequests | AtStep
_TRIGGERS: Final = ("at", "after_previous", "after", "at_step")


class Known(NamedTuple):
    """What exists in the cluster of a script. `is_endless`: a fault may last until somebody ends the script."""

    brokers: Collection[int]
    steps: Collection[str]
    apis: Collection[str]
    has_faults: bool = True
    runs_zookeeper: bool = True
    is_endless: bool = True


@dataclass(frozen=True)
class ScriptEntry:
    """One entry. `place`: where it is, for errors. `seconds`: how long it lasts; None: see `Verb.is_held`."""

    place: str
    verb: str
    arguments: Mapping[str, Any]
    trigger: Trigger
    seconds: float | None = None
    times: int = 1
    gap: float = 0

    @property
    def name(self) -> str:
        """The verb with its arguments, for messages."""
        words = [f"{name}={value}" for name, value in self.arguments.items() if name not in "ab"]
        ends = [str(self.arguments[name]) for name in "ab" if name in self.arguments]
        if "broker" in self.arguments:
            words = [str(self.arguments["broker"]), *words]
            words.remove(f"broker={self.arguments['broker']}")
        return " ".join([self.verb.replace("_", "-"), *ends, *words])

    def __str__(self) -> str:
        lasts = "" if self.seconds is None else f", for {self.seconds:g} s"
        again = "" if self.times == 1 else f", {self.times} times, {self.gap:g} s apart"
        return f"{self.name}: {self.trigger}{lasts}{again}"

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a JSON object."""
        return {
            "fault": self.name,
            "begins": str(self.trigger),
            "seconds": self.seconds,
            "times": self.times,
            "gap": self.gap,
        }

    @property
    def is_held(self) -> bool:
        """True if it lasts until the end of the script."""
        return self.seconds is None and VERBS[self.verb].is_held


def parse_file(text: str, file: str, known: Known) -> list[ScriptEntry]:
    """Return the entries of a TOML document. Raises ClusterError with the file, the entry and the mistake."""
    try:
        document = read_toml(text)
    except ConfigError as error:
        raise ClusterError(f"{file}: {error}") from error
    rows = document.get(TABLE)
    for name in document:
        if name != TABLE:
            raise ClusterError(
                f"{file}: unknown key {name!r}: a script has tables [[{TABLE}]] only"
            )
    if not isinstance(rows, list):
        raise ClusterError(
            f"{file}: a script has one or more tables [[{TABLE}]], and this has none"
        )
    return parse_rows(rows, f"{file}, ", known)


def parse_rows(rows: object, source: str, known: Known) -> list[ScriptEntry]:
    """Return the entries of a list of mappings. Raises ClusterError with the entry and the mistake."""
    if not isinstance(rows, Iterable) or isinstance(rows, Mapping | bytes):
        raise ClusterError(
            f"a script must be the path of a file, or a list of entries, got {rows!r}"
        )
    entries: list[ScriptEntry] = []
    for number, row in enumerate(rows, 1):
        entry = _Reader(row, f"{source}entry {number}", known).entry()
        if isinstance(entry.trigger, AfterPrevious):
            if not entries:
                raise ClusterError(f"{entry.place}: after_previous needs an entry before it")
            if entries[-1].is_held:
                text = f"{entry.place} waits for the end of entry {number - 1}"
                raise ClusterError(f"{text}, which has no `for`")
        entries.append(entry)
    if not entries:
        raise ClusterError(f"{source or 'the script, '}entry 1 is missing: the script is empty")
    return entries


class _Reader:
    """The checks of one row. `_fail` raises ClusterError with the place of the row."""

    def __init__(self, row: object, place: str, known: Known) -> None:
        self._place = place
        self._known = known
        if not isinstance(row, Mapping):
            self._fail(f"must be a table of keys and values, got {row!r}")
        self._row: Mapping[str, Any] = row

    def entry(self) -> ScriptEntry:
        name = self._verb_name()
        verb = VERBS[name]
        self._check_keys(name, verb)
        arguments = {key: self._argument(key, verb.arguments[key]) for key in self._of(verb)}
        trigger = self._trigger()
        self._check_held(arguments, trigger)
        self._check_ends(name, arguments)
        times = self._integer("times", 1, _TIMES_MAX, 1)
        seconds = None if "for" not in self._row else self._seconds("for", self._row["for"])
        entry = ScriptEntry(
            self._place,
            name,
            arguments,
            trigger,
            seconds,
            times,
            self._gap(times),
        )
        self._check_duration(entry, verb)
        return entry

    def _verb_name(self) -> str:
        if "do" not in self._row:
            self._fail(f"lacks the key do, the verb: one of {', '.join(VERBS)}")
        name = self._row["do"]
        known = str(name).replace("-", "_")
        if known not in VERBS:
            self._fail(f"unknown verb {name!r}; the nearest are {nearest_names(str(name), VERBS)}")
        return known

    def _of(self, verb: Verb) -> list[str]:
        return [key for key in verb.arguments if key in self._row]

    def _check_keys(self, name: str, verb: Verb) -> None:
        allowed = (*_COMMON, *_TRIGGERS, *verb.arguments)
        for key in self._row:
            if key not in allowed:
                near = nearest_names(str(key), allowed)
                self._fail(f"{name} has no key {key!r}; the nearest are {near}")
        for key, argument in verb.arguments.items():
            if argument.is_required and key not in self._row:
                self._fail(f"{name} needs the key {key}")
        if verb.either and len([key for key in verb.either if key in self._row]) != 1:
            self._fail(f"{name} needs either {' or '.join(verb.either)}")
        if verb.needs_faults and not self._known.has_faults:
            self._fail(f"{name} needs LocalCluster(faults=True) or minikafka up --faults")

    def _argument(self, key: str, argument: VerbArgument) -> Any:
        value = self._row[key]
        if isinstance(argument.kind, tuple):
            if value not in argument.kind:
                self._fail(f"{key} must be one of {', '.join(argument.kind)}, got {value!r}")
            return value
        if isinstance(argument.kind, range):
            return self._integer(key, argument.kind[0], argument.kind[-1])
        if argument.kind in (verbs.TEXT, verbs.FLAG):
            wanted = str if argument.kind == verbs.TEXT else bool
            if type(value) is not wanted or value == "":
                self._fail(
                    f"{key} must be {'a text' if wanted is str else 'true or false'}, got {value!r}"
                )
            return value
        return self._target(key, value, argument.kind)

    def _target(self, key: str, value: object, kind: str) -> Any:
        """Return a broker id, or the name of a process or peer."""
        names = {verbs.PROCESS: (ZOOKEEPER,), verbs.PEER: (ZOOKEEPER, CLIENTS)}
        words = (*names.get(kind, ()), verbs.CONTROLLER, verbs.HELD)
        if type(value) is int:
            if value not in self._known.brokers:
                ids = ", ".join(map(str, self._known.brokers))
                self._fail(f"there is no broker {value}, the cluster has {ids}")
        elif not isinstance(value, str) or not (value in words or verbs.LEADER.fullmatch(value)):
            forms = ", ".join((*words, "leader of TOPIC-PARTITION"))
            self._fail(f"{key} must be the id of a broker, or one of {forms}, got {value!r}")
        elif value == ZOOKEEPER and not self._known.runs_zookeeper:
            self._fail(f"{key} cannot be {value}: the cluster runs no ZooKeeper of its own")
        return value

    def _trigger(self) -> Trigger:
        given = [key for key in _TRIGGERS if key in self._row]
        if len(given) > 1:
            self._fail(f"has the triggers {' and '.join(given)}: leave only one")
        if not given:
            return At(0)
        key, value = given[0], self._row[given[0]]
        if key == "at":
            return At(self._seconds(key, value))
        if key == "after_previous":
            return AfterPrevious(self._seconds(key, value))
        if key == "after":
            return self._requests(value)
        if value not in self._known.steps:
            near = nearest_names(str(value), self._known.steps)
            self._fail(f"there is no step {value!r}; the nearest are {near}")
        return AtStep(value)

    def _requests(self, value: object) -> AfterRequests:
        known = self._known
        if not isinstance(value, Mapping) or "api" not in value:
            self._fail(f'after must be of the form {{ api = "Produce", n = 100 }}, got {value!r}')
        for key in value:
            if key not in ("api", "n", "broker"):
                self._fail(f"after has no key {key!r}; it has api, n and broker")
        if not known.has_faults:
            self._fail("after needs LocalCluster(faults=True) or minikafka up --faults")
        api, n, broker = value["api"], value.get("n", 1), value.get("broker")
        if api not in known.apis:
            near = nearest_names(str(api), known.apis)
            self._fail(f"there is no API {api!r}; the nearest are {near}")
        if type(n) is not int or not 1 <= n <= verbs.NUMBER_MAX:
            self._fail(f"n must be a whole number of at least 1, got {n!r}")
        if broker is not None and (type(broker) is not int or broker not in known.brokers):
            ids = ", ".join(map(str, known.brokers))
            self._fail(f"there is no broker {broker!r}, the cluster has {ids}")
        return AfterRequests(api, n, broker)

    def _check_held(self, arguments: Mapping[str, Any], trigger: Trigger) -> None:
        if verbs.HELD in arguments.values() and not isinstance(trigger, AtStep):
            self._fail(f"the broker {verbs.HELD} needs the trigger at_step")

    def _check_ends(self, verb: str, arguments: Mapping[str, Any]) -> None:
        """Refuse a connection that the cluster does not have. What a name stands for is known only later."""
        ends = [arguments[key] for key in "ab" if key in arguments]
        if not ends or not all(type(end) is int or end in _PLACES for end in ends):
            return
        others = {key: value for key, value in arguments.items() if key not in "ab"}
        known = self._known
        rule = FaultRule(verb, *ends, **others)
        if problem := problem_of(rule, known.brokers, has_zookeeper=known.runs_zookeeper):
            self._fail(problem)

    def _check_duration(self, entry: ScriptEntry, verb: Verb) -> None:
        if entry.seconds is not None and not verb.lasts:
            self._fail(f"{entry.verb} does not last: leave out for")
        if entry.is_held and (entry.times > 1 or not self._known.is_endless):
            why = (
                "it is repeated" if entry.times > 1 else "the command ends when its last fault ends"
            )
            self._fail(f"{entry.verb} needs for, a number of seconds: {why}")

    def _gap(self, times: int) -> float:
        if "gap" in self._row and times == 1:
            self._fail("gap is the time between repetitions, and there are none: add times")
        return self._seconds("gap", self._row.get("gap", 0))

    def _seconds(self, key: str, value: object) -> float:
        is_number = type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
        if not is_number or not 0 <= value <= _SECONDS_MAX:  # type: ignore[operator]
            self._fail(f"{key} must be a number of seconds from 0 to {_SECONDS_MAX}, got {value!r}")
        return float(value)  # type: ignore[arg-type]

    def _integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        value = self._row.get(key, default)
        if type(value) is not int or not low <= value <= high:
            self._fail(f"{key} must be a whole number from {low} to {high}, got {value!r}")
        return value

    def _fail(self, text: str) -> NoReturn:
        raise ClusterError(f"{self._place}: {text}")
