"""The states of a cluster that is gone, computed from its ledgers: who led, and which brokers were alive, at any time.

The input is the lines from `broker.ledger.reader`; the module does no I/O. Invariant: a state contains only what the
lines say. The ledgers have no offsets of records, so rows have none. Partitions that no kept line names are missing.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minikafka.base.model import NO_LEADER
from minikafka.broker.ledger.record import BROKER, ELECTION, EVENT, GROUP, ISR, STATE_CHANGE, WRITE
from minikafka.tools.console.observation.grid import Row
from minikafka.tools.console.observation.members import DOWN, RUNNING
from minikafka.tools.explain.past import assignments_in, leadership_in, suspects_of
from minikafka.tools.explain.trace import Line

_TOPIC: Final = re.compile(r"/brokers/topics/([^/]+)")
_STATE: Final = re.compile(r"/brokers/topics/([^/]+)/partitions/([0-9]+)/state")
_KEEP: Final = 5_000
"""Number of changes from one kept state to the next."""
MARKS_MAX: Final = 4_000
"""Maximum number of marks of a timeline. Of more, evenly spaced ones are kept."""
_UP: Final = ("started", "registered")
_GONE: Final = ("stopped", "session lost")


class _Partition(NamedTuple):
    """What the ledgers say about a partition. `leader`: None if nobody leads."""

    replicas: tuple[int, ...] = ()
    leader: int | None = None
    epoch: int = -1
    isr: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class ReplayedState(NamedTuple):
    """The cluster at one time. `brokers`: by id, whether the broker is alive."""

    partitions: dict[str, _Partition]
    brokers: dict[int, bool]
    controller: int | None
    controller_epoch: int | None

    def rows(self) -> dict[str, Row]:
        """Return the rows of all partitions, without offsets. A leader that is not alive leads no longer."""
        return {name: self._row(one) for name, one in self.partitions.items()}

    def _row(self, one: _Partition) -> Row:
        dead = [id_ for id_ in one.replicas if not self.brokers.get(id_, True)]
        leader = None if one.leader in dead else one.leader
        head = [leader, one.epoch, list(one.replicas), list(one.isr), dead]
        return [*head, None, None, None, list(one.adding), list(one.removing), None]

    def broker_rows(self) -> list[dict[str, Any]]:
        """Return the row of each broker."""
        found = []
        for id_ in sorted(self.brokers):
            is_alive = self.brokers[id_]
            some = self.partitions.values()
            found.append(
                {
                    "id": id_,
                    "host": None,
                    "port": None,
                    "rack": None,
                    "state": RUNNING if is_alive else DOWN,
                    "reason": "" if is_alive else "the ledgers say that it had ended",
                    "leaders": sum(one.leader == id_ for one in some) if is_alive else 0,
                    "preferred": sum(one.replicas[:1] == (id_,) for one in some),
                    "replicas": sum(id_ in one.replicas for one in some),
                    "session": None,
                    "records_in": None,
                    "bytes_in": None,
                    "bytes_out": None,
                }
            )
        return found


class _Change(NamedTuple):
    """A change of one value. `kind`: partition, broker or controller. `key`: its name or id. `value`: None: removed."""

    time_ms: int
    kind: str
    key: Any
    value: Any


class Replay:
    """All states of a cluster, from the merged lines of its ledgers."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self._changes: list[_Change] = []
        self._kept: list[ReplayedState] = []
        self._now = ReplayedState({}, {}, None, None)
        for line in lines:
            for change in _changes(line, self._now):
                self._add(change)
        self._times = [change.time_ms for change in self._changes]

    @property
    def from_ms(self) -> int | None:
        """The time of the first line; None without lines."""
        return int(self.lines[0]["time"]) if self.lines else None

    @property
    def to_ms(self) -> int | None:
        """The time of the last line; None without lines."""
        return int(self.lines[-1]["time"]) if self.lines else None

    def _add(self, change: _Change) -> None:
        if len(self._changes) % _KEEP == 0:
            self._kept.append(_copied(self._now))
        last = self._changes[-1].time_ms if self._changes else 0
        change = change._replace(time_ms=max(change.time_ms, last))
        self._changes.append(change)
        self._now = _applied(self._now, change)

    def at(self, time_ms: int) -> ReplayedState:
        """Return the state after all lines up to this time."""
        count = bisect_right(self._times, time_ms)
        if not self._kept:
            return self._now
        first = min(count // _KEEP, len(self._kept) - 1)
        state = _copied(self._kept[first])
        for change in self._changes[first * _KEEP : count]:
            state = _applied(state, change)
        return state

    def marks(self) -> list[list[Any]]:
        """Return [time, kind, partition or broker] for each noteworthy change, oldest first."""
        found = [*self._marks()]
        step = -(-len(found) // MARKS_MAX) or 1
        return found[::step]

    def _marks(self) -> Iterator[list[Any]]:
        leaders: dict[str, tuple[int | None, int]] = {}
        alive: dict[int, bool] = {}
        for change in self._changes:
            key, value = change.key, change.value
            if change.kind == "controller":
                yield [change.time_ms, "controller", value[0]]
            elif change.kind == "broker" and alive.get(key) != value:
                alive[key] = value
                yield [change.time_ms, "broker up" if value else "broker down", key]
            elif change.kind == "partition" and value is None:
                yield [change.time_ms, "deleted", key]
            elif change.kind == "partition":
                now = (value.leader, len(value.isr))
                before = leaders.get(key)
                leaders[key] = now
                if before != now:
                    kind = "leader" if before is None or before[0] != now[0] else "isr"
                    yield [change.time_ms, kind, key]

    def groups(self) -> dict[str, list[Line]]:
        """Return the lines about consumer groups by group."""
        found: dict[str, list[Line]] = {}
        for line in self.lines:
            if line["kind"] == GROUP:
                found.setdefault(line["group"], []).append(line)
        return found


def _copied(state: ReplayedState) -> ReplayedState:
    return state._replace(partitions={**state.partitions}, brokers={**state.brokers})


def _applied(state: ReplayedState, change: _Change) -> ReplayedState:
    """Return the state after a change. The dictionaries of the state are changed in place."""
    if change.kind == "controller":
        controller, epoch = change.value
        return state._replace(controller=controller, controller_epoch=epoch)
    if change.kind == "broker":
        state.brokers[change.key] = change.value
    elif change.value is None:
        state.partitions.pop(change.key, None)
    else:
        state.partitions[change.key] = change.value
    return state


def _changes(line: Line, now: ReplayedState) -> Iterable[_Change]:
    """Return what a line changes. `now`: the state before the line."""
    kind, time_ms = line["kind"], int(line["time"])
    if kind == WRITE and line["outcome"] == "ok":
        return _written(line, now, time_ms)  # each change sees those before it
    if kind == ISR and line["outcome"] == "ok":
        name = f"{line['topic']}-{line['partition']}"
        known = now.partitions.get(name, _Partition())
        isr = tuple(line["isr"])
        changed = known._replace(leader=line["broker"], epoch=line["leader_epoch"], isr=isr)
        return [_Change(time_ms, "partition", name, changed)]
    if kind == STATE_CHANGE and line["fact"] == "move":
        return [_moved(line, now, time_ms)]
    if kind == ELECTION and line["outcome"] in ("won", "took over"):
        value = (line["controller"], line["epoch"])
        return [_Change(time_ms, "controller", None, value)]
    return _lives(line, now, time_ms)


def _lives(line: Line, now: ReplayedState, time_ms: int) -> list[_Change]:
    """Return which brokers a line shows to be alive or gone."""
    alive: dict[int, bool] = {}
    if line["kind"] == BROKER and line["fact"] in (*_UP, *_GONE):
        alive[line["broker"]] = line["fact"] in _UP
    elif line["kind"] == BROKER and line["fact"] == "connection lost" and not now.controller:
        alive[line["to"]] = False  # in the mode leaders, nobody else says it
    elif line["kind"] == EVENT and "brokers" in line:
        known = set(map(int, line["brokers"])) - set(suspects_of(line))
        alive = {**dict.fromkeys(now.brokers, False), **dict.fromkeys(known, True)}
    elif line["kind"] == EVENT and line["event"] in ("BrokerSuspected", "SuspicionEnded"):
        alive[line["of"]] = line["event"] == "SuspicionEnded"
    return [
        _Change(time_ms, "broker", id_, is_alive)
        for id_, is_alive in alive.items()
        if now.brokers.get(id_) != is_alive
    ]


def _written(line: Line, now: ReplayedState, time_ms: int) -> Iterator[_Change]:
    for operation in line["operations"]:
        path, data = operation["path"], operation["data"]
        if match := _STATE.fullmatch(path):
            name = f"{match[1]}-{match[2]}"
            if (found := leadership_in(data)) is not None:
                leader, epoch, isr = found
                known = now.partitions.get(name, _Partition())
                led_by = None if leader == NO_LEADER else leader
                changed = known._replace(
                    leader=led_by, epoch=epoch, isr=isr, replicas=known.replicas or isr
                )
                yield _Change(time_ms, "partition", name, changed)
        elif match := _TOPIC.fullmatch(path):
            yield from _topic(match[1], operation, now, time_ms)


def _topic(
    topic: str, operation: Mapping[str, Any], now: ReplayedState, time_ms: int
) -> Iterator[_Change]:
    """Yield the changes of the partitions of a topic whose node was written or deleted."""
    if operation["op"] == "delete":
        for name in [name for name in now.partitions if name.rpartition("-")[0] == topic]:
            yield _Change(time_ms, "partition", name, None)
        return
    for number, assigned in assignments_in(operation["data"]).items():
        name = f"{topic}-{number}"
        known = now.partitions.get(name, _Partition())
        changed = known._replace(
            replicas=tuple(assigned.replicas),
            adding=tuple(assigned.adding),
            removing=tuple(assigned.removing),
        )
        yield _Change(time_ms, "partition", name, changed)


def _moved(line: Line, now: ReplayedState, time_ms: int) -> _Change:
    """Return the change by a move of a replica in the mode leaders."""
    name, broker = f"{line['topic']}-{line['partition']}", line["broker"]
    known = now.partitions.get(name, _Partition())
    others = tuple(one for one in known.replicas if one != broker)
    if line["target"] == "absent":
        return _Change(time_ms, "partition", name, known._replace(replicas=others))
    replicas = known.replicas if broker in known.replicas else (*others, broker)
    changed = known._replace(replicas=replicas)
    if line["target"] == "leading":
        changed = changed._replace(leader=broker, epoch=line["epoch"], isr=known.isr or (broker,))
    return _Change(time_ms, "partition", name, changed)
