"""The output of `groups describe`, printed once, or with `--watch` again after each interval."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, NoReturn

from minikafka.cli.arguments.similar import similar_groups
from minikafka.cli.groups.view import (
    DEAD,
    OffsetRow,
    as_json_members,
    as_json_offsets,
    as_json_state,
    member_lines,
    offset_lines,
    read_offsets,
    remark,
    state_lines,
)
from minikafka.cli.terminal.result import wants_json
from minikafka.cli.terminal.watch import watch_lines
from minikafka.client import Client
from minikafka.client.groups.admin import GroupDescription


class Aspect(Enum):
    """The kind of information about a group that `groups describe` shows."""

    OFFSETS = "offsets"
    MEMBERS = "members"
    STATE = "state"


class Looked(NamedTuple):
    """The groups that were found: as an object, as lines, and remarks about them. `has_all`: no group is missing."""

    result: list[dict[str, Any]]
    lines: list[str]
    remarks: list[str]
    has_all: bool


@dataclass(frozen=True, slots=True)
class Look:
    """The arguments of `groups describe`. `groups`: () for all groups."""

    groups: tuple[str, ...]
    aspect: Aspect
    verbose: bool

    async def read(self, client: Client) -> Looked:
        """Read the groups from the cluster."""
        names = self.groups or [listing.group for listing in await client.groups.list_groups()]
        described = (await client.groups.describe(names)).values()
        missing = [group.group for group in described if group.state == DEAD]
        found = [group for group in described if group.state != DEAD]
        rows: dict[str, list[OffsetRow]] = {}
        if self.aspect is Aspect.OFFSETS:
            rows = await read_offsets(client, found)
        remarks = [text for text in map(remark, found) if text and not wants_json()]
        remarks += [
            f"minikafka: GROUP_ID_NOT_FOUND: {name}: there is no such group{await similar_groups(client, name)}"
            for name in missing
        ]
        shown = [self._as_json(group, rows.get(group.group, [])) for group in found]
        lines: list[str] = []
        for group in found:
            block = list(self._lines(group, rows.get(group.group, [])))
            lines += ["", *block] if lines and block else block
        return Looked(shown, lines, remarks, not missing)

    def _as_json(self, group: GroupDescription, rows: list[OffsetRow]) -> dict[str, Any]:
        if self.aspect is Aspect.OFFSETS:
            return as_json_offsets(group, rows)
        return as_json_members(group) if self.aspect is Aspect.MEMBERS else as_json_state(group)

    def _lines(self, group: GroupDescription, rows: list[OffsetRow]) -> Iterator[str]:
        if self.aspect is Aspect.OFFSETS:
            return offset_lines(group.group, rows) if rows else iter(())
        if self.aspect is Aspect.MEMBERS:
            return member_lines(group, verbose=self.verbose) if group.members else iter(())
        return state_lines(group)


async def watch_groups(client: Client, look: Look, interval_seconds: float) -> NoReturn:
    """Show the groups again after each interval, until the task is cancelled."""
    from rich.text import Text

    async def read() -> tuple[Any, list[Text]]:
        found = await look.read(client)
        lines = [*found.remarks, *found.lines]
        return found.result, [Text(line, no_wrap=True, overflow="ellipsis") for line in lines]

    await watch_lines(read, interval_seconds)
