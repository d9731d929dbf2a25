"""Descriptions of the facts about a consumer group.

The input is ledger lines of the kind `group` (`broker/ledger/record.py`, `deciders/groups/commands.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from minikafka.base.errors import code_name
from minikafka.deciders.groups import commands
from minikafka.tools.explain.trace import Line

_ID: Final = re.compile(
    r"(.*-[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.DOTALL
)


def member_name(member_id: str, instance_id: str | None = None) -> str:
    """Return a short name of a member: the instance id, or the member id with a shortened UUID."""
    if instance_id is not None:
        return f"static member {instance_id}"
    found = _ID.fullmatch(member_id)
    return found[1] if found else member_id


def client_of(member_id: str) -> str:
    """Return the client id or instance id at the beginning of a member id."""
    found = _ID.fullmatch(member_id)
    return found[1][:-9] if found else member_id


def duration(ms: int) -> str:
    """Format a duration: minutes from 2 min on, seconds with one decimal from 1 s on, else milliseconds."""
    if ms >= 120_000:
        return f"{ms // 60_000} min"
    return f"{ms / 1000:.1f} s" if ms >= 1000 else f"{max(ms, 0)} ms"


def count(number: int, noun: str) -> str:
    """Return the number and the noun as text, with the plural of the noun if the number is not 1."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def cause_of(line: Line) -> str:
    """Return a description of the cause of a rebalance. `line`: the ledger line about the start of the rebalance."""
    member = member_name(line["member"], line.get("instance"))
    cause: str = line["trigger"]
    words: dict[str, str] = {
        commands.JOINED: f"{member} joined",
        commands.REJOINED: f"the leader {member} joined again",
        commands.METADATA_CHANGED: f"{member} {'; '.join(line.get('changed') or ['changed its metadata'])}",
        commands.STATIC_RETURNED: f"{member} returned as a static member",
        commands.LEFT: f"{member} left",
        commands.SESSION_EXPIRED: f"the session of {member} expired",
        commands.NOT_SYNCED: f"{member} did not fetch its assignment in time",
        commands.WRITE_FAILED: "the assignment could not be written",
        commands.OVER_CAPACITY: "the group has more members than group.max.size",
    }
    return words.get(cause, cause) + _reason(line)


def _reason(line: Line) -> str:
    return f' ("{line["reason"]}")' if line.get("reason") else ""


def _at(line: Line) -> str:
    return f"{line['client']} at {line['host'].removeprefix('/')}"


def _added(line: Line) -> str:
    return f"{member_name(line['member'], line['instance'])} joined ({_at(line)})"


def _removed(line: Line) -> str:
    member = member_name(line["member"], line["instance"])
    return f"{member} was removed ({_at(line)}): {line['trigger']}{_reason(line)}"


def _replaced(line: Line) -> str:
    return (
        f"static member {line['instance']} returned ({_at(line)}) as {member_name(line['member'])}"
    )


def _started(line: Line) -> str:
    return f"rebalance of {count(line['members'], 'member')} started: {cause_of(line)}"


def last_of(line: Line) -> str:
    """Return a phrase that names the member that joined last; "" if the ledger line does not name this member."""
    return f", {member_name(line['last'], line.get('last_instance'))} last" if line["last"] else ""


def leader_of(line: Line) -> str:
    """Return the displayed name of the group leader that the ledger line contains."""
    return member_name(line["leader"], line.get("leader_instance"))


def _joined(line: Line) -> str:
    return (
        f"{count(line['members'], 'member')} joined in {duration(line['joining_ms'])}{last_of(line)}; "
        f"leader {leader_of(line)}, protocol {line['protocol']}"
    )


def _stable(line: Line) -> str:
    return (
        f"assigned in {duration(line['assigning_ms'])}, written in {duration(line['writing_ms'])}; "
        f"{duration(line['rebalance_ms'])} in all"
    )


def _failed(line: Line) -> str:
    return f"a write to __consumer_offsets failed ({line['what']}): {code_name(line['error'])}"


def _refused(line: Line) -> str:
    member = member_name(line["member"], line["instance"]) if line["member"] else "a client"
    named = "" if line["of_generation"] < 0 else f" for generation {line['of_generation']}"
    times = f", {line['count']} times" if line["count"] > 1 else ""
    return f"commit of {member}{named} refused: {code_name(line['error'])}{times}"


_DESCRIBE: Final[Mapping[str, Callable[[Line], str]]] = {
    commands.MEMBER_ADDED: _added,
    commands.MEMBER_REMOVED: _removed,
    commands.MEMBER_REPLACED: _replaced,
    commands.PREPARING: _started,
    commands.COMPLETING: _joined,
    commands.STABLE: _stable,
    commands.EMPTY: lambda line: "the last member is gone",
    commands.DEAD: lambda line: f"the group was removed: {line['trigger']}",
    commands.APPEND_FAILED: _failed,
    commands.COMMIT_REFUSED: _refused,
    commands.LOADED: lambda line: (
        f"broker {line['broker']} became the coordinator: {count(line['members'], 'member')}, "
        f"{line['offsets']} committed offsets"
    ),
    commands.UNLOADED: lambda line: f"broker {line['broker']} is no longer the coordinator",
}


def describe(line: Line) -> str:
    """Return a description of the fact in the line, without the time and the broker of the line."""
    describe_fact = _DESCRIBE.get(line["fact"])
    return describe_fact(line) if describe_fact else line["fact"]


def named(member: Mapping[str, Any]) -> str:
    """Return the name of a member in the coordinator's report, with its client id and host."""
    name = member_name(member["member"], member["instance"])
    return f"{name} ({member['client']} at {member['host'].removeprefix('/')})"
