"""The history of a consumer group: its rebalances, and other facts from the ledgers of its coordinators.

The input is the lines from `broker.ledger.reader.read_group`. The module does no I/O. Invariant: every line belongs to
exactly one entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from minikafka.broker.ledger.reader import name_of
from minikafka.deciders.groups import commands
from minikafka.tools.explain.groups.words import (
    cause_of,
    count,
    describe,
    duration,
    last_of,
    leader_of,
)
from minikafka.tools.explain.trace import Line

_MEMBERS: Final = (commands.MEMBER_ADDED, commands.MEMBER_REMOVED, commands.MEMBER_REPLACED)
_ENDS: Final = (commands.STABLE, commands.EMPTY)
_MOVES: Final = (commands.LOADED, commands.UNLOADED, commands.DEAD)
_SAME_CALL_MS: Final = 50
"""Maximum time from a change of the members to the start of the rebalance that the change causes."""


@dataclass(slots=True)
class HistoryEntry:
    """A rebalance with all its ledger lines, or one other fact."""

    lines: list[Line]
    interrupted: str = ""
    """The reason why the rebalance was interrupted; "" if it was not interrupted."""
    start: Line | None = field(init=False)
    """The line about the start of the rebalance; None for other facts, or if the line is lost."""

    def __post_init__(self) -> None:
        self.start = self.find(commands.PREPARING)

    @property
    def time(self) -> int:
        """Time (Unix ms) of the rebalance's start; the time of the entry's first line if no line records a start."""
        return int((self.start or self.lines[0])["time"])

    @property
    def is_rebalance(self) -> bool:
        """True for a rebalance, False for a single fact."""
        return any(self.find(fact) for fact in (commands.PREPARING, commands.COMPLETING, *_ENDS))

    @property
    def is_open(self) -> bool:
        """True for a rebalance in progress."""
        return (
            self.is_rebalance
            and not self.interrupted
            and not any(self.find(fact) for fact in _ENDS)
        )

    @property
    def generation(self) -> int:
        """The group's generation in the last line of the entry."""
        return int(self.lines[-1]["generation"])

    def find(self, fact: str) -> Line | None:
        """Return the entry's first line whose field `fact` has this value; None if there is no such line."""
        return next((line for line in self.lines if line["fact"] == fact), None)

    def summary(self) -> str:
        """Return one sentence about the entry."""
        if not self.is_rebalance:
            return describe(self.lines[0])
        start = self.start
        causes = [cause_of(start) if start is not None else "rebalance"]
        causes += [describe(line) for line in self._other_members()]
        return "; ".join([*causes, *self._outcome()])

    def _other_members(self) -> Iterable[Line]:
        """Yield the lines about added, removed or replaced members, except the member that caused the rebalance."""
        cause = self.start["member"] if self.start is not None else ""
        return (line for line in self.lines if line["fact"] in _MEMBERS and line["member"] != cause)

    def _outcome(self) -> list[str]:
        joined, stable = self.find(commands.COMPLETING), self.find(commands.STABLE)
        if stable is not None:
            words = f"generation {stable['generation']} of {count(stable['members'], 'member')} after {_total(stable)}"
            return [f"{words} ({_phases(joined, stable)})" if joined is not None else words]
        if self.find(commands.EMPTY) is not None:
            return [f"no member is left in generation {self.generation}"]
        so_far = [describe(joined)] if joined is not None else []
        return [
            *so_far,
            f"not finished: {self.interrupted}" if self.interrupted else "not finished yet",
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the entry as a dict for JSON.

        `lines` contains each ledger line with all its fields, a name (`line`) and a description (`text`).
        """
        stable, joined = self.find(commands.STABLE), self.find(commands.COMPLETING)
        return {
            "time": self.time,
            "rebalance": self.is_rebalance,
            "trigger": self.start["trigger"] if self.start is not None else None,
            "member": self.start["member"] if self.start is not None else None,
            "generation": self.generation,
            "finished": stable is not None or self.find(commands.EMPTY) is not None,
            "joining_ms": joined["joining_ms"] if joined is not None else None,
            "assigning_ms": stable["assigning_ms"] if stable is not None else None,
            "writing_ms": stable["writing_ms"] if stable is not None else None,
            "rebalance_ms": stable["rebalance_ms"] if stable is not None else None,
            "summary": self.summary(),
            "lines": [
                {**line, "line": name_of(line), "text": describe(line)} for line in self.lines
            ],
        }


def _total(stable: Line) -> str:
    return duration(stable["rebalance_ms"])


def _phases(joined: Line, stable: Line) -> str:
    return (
        f"{duration(joined['joining_ms'])} until all had joined{last_of(joined)}; "
        f"{duration(stable['assigning_ms'])} until the leader {leader_of(stable)} sent the assignment; "
        f"{duration(stable['writing_ms'])} to write it"
    )


def history(lines: Iterable[Line]) -> list[HistoryEntry]:
    """Return the rebalances and the other facts in the ledger lines about one group, oldest first."""
    entries: list[HistoryEntry] = []
    rebalance: list[Line] = []
    waiting: list[Line] = []
    """Changes of the members since the last rebalance. They may be the cause of the next rebalance."""

    def close(interrupted: str = "") -> None:
        if rebalance:
            entries.append(HistoryEntry(rebalance.copy(), interrupted))
            rebalance.clear()

    for line in lines:
        fact = line["fact"]
        if fact == commands.PREPARING:
            # The latest changes of the members may be the cause of the rebalance that begins here.
            while rebalance and rebalance[-1]["fact"] in _MEMBERS:
                waiting.insert(0, rebalance.pop())
            close("the next one began")
            causes = [each for each in waiting if _caused(each, line)]
            entries += [HistoryEntry([each]) for each in waiting if each not in causes]
            waiting.clear()
            rebalance += [*causes, line]
        elif fact in _MEMBERS and not rebalance:
            waiting.append(line)
        elif fact in _MOVES:
            close("the coordinator moved" if fact != commands.DEAD else "the group was removed")
            entries.append(HistoryEntry([line]))
        elif fact in (*_MEMBERS, commands.COMPLETING, *_ENDS) or _is_write_of_group(line):
            rebalance.append(line)
            if fact in _ENDS:
                close()
        else:
            entries.append(HistoryEntry([line]))
    close()
    entries += [HistoryEntry([line]) for line in waiting]
    return sorted(entries, key=lambda entry: entry.time)


def _caused(change: Line, start: Line) -> bool:
    is_near: bool = start["time"] - change["time"] <= _SAME_CALL_MS
    is_same: bool = change["broker"] == start["broker"]
    return is_near and is_same


def _is_write_of_group(line: Line) -> bool:
    return line["fact"] == commands.APPEND_FAILED and line["what"] in ("assignment", "empty group")


def rebalances(entries: Sequence[HistoryEntry]) -> list[HistoryEntry]:
    """Return the rebalances among the entries."""
    return [entry for entry in entries if entry.is_rebalance]
