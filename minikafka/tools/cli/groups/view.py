"""The output of `groups describe`: in the columns of kafka-consumer-groups.sh, or as JSON.

A missing value is None in a row, and "-" in the output. Values are missing if a partition has no committed
offset, no leader, or no member that reads it. With `--watch` the output is printed again after each interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, NoReturn

import rich.text as rich_text

from minikafka.base.model import TopicPartition
from minikafka.client import Client
from minikafka.client.administration.group_admin import GroupDescription, MemberDescription
from minikafka.client.log_offsets import LATEST
from minikafka.tools.cli.terminal.columns import table_lines
from minikafka.tools.cli.terminal.echo import wants_json
from minikafka.tools.cli.terminal.topic_errors import similar_groups
from minikafka.tools.cli.terminal.watch import watch_lines

DEAD: Final = "Dead"
EMPTY: Final = "Empty"
REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance")
_WIDTH: Final = 15
_COORDINATOR_WIDTH: Final = 25
_INSTANCE_WIDTH: Final = 17


class OffsetRow(NamedTuple):
    """One partition of a group, with the offsets and the member that `groups describe` shows."""

    tp: TopicPartition
    current_offset: int | None
    log_end_offset: int | None
    member: MemberDescription | None

    @property
    def lag(self) -> int | None:
        """Log end offset minus current offset; None if one of these offsets is unknown."""
        if self.current_offset is None or self.log_end_offset is None:
            return None
        return self.log_end_offset - self.current_offset


async def read_offsets(
    client: Client, groups: Sequence[GroupDescription]
) -> dict[str, list[OffsetRow]]:
    """Return group id -> rows of the group.

    A group has a row for each partition that is assigned to a member, then a row for each other partition with a
    committed offset. A partition without a leader has no log end offset. Raises KafkaError.
    """
    committed = {group.group: await client.groups.offsets(group.group) for group in groups}
    partitions = {tp for offsets in committed.values() for tp in offsets}
    partitions |= {tp for g in groups for member in g.members for tp in member.partitions}
    ends = await _ends(client, partitions)
    return {group.group: list(_rows(group, committed[group.group], ends)) for group in groups}


async def _ends(client: Client, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log end offsets; partitions without a leader, or of deleted topics, are left out."""
    _, topics = await client.admin.describe(sorted({tp.topic for tp in partitions}))
    led = {
        TopicPartition(topic.name, number): LATEST
        for topic in topics
        for number, partition in topic.partitions.items()
        if partition.leader >= 0
    }
    wanted = {tp: at for tp, at in led.items() if tp in partitions}
    return await client.log_offsets(wanted) if wanted else {}


def _rows(
    group: GroupDescription,
    committed: Mapping[TopicPartition, Any],
    ends: Mapping[TopicPartition, int],
) -> Iterator[OffsetRow]:
    left = dict(committed)
    for member in sorted(group.members, key=lambda m: -len(m.partitions)):
        for tp in member.partitions:
            at = left.pop(tp, None)
            yield OffsetRow(tp, at and at.offset, ends.get(tp), member)
    for tp, at in sorted(left.items()):
        yield OffsetRow(tp, at.offset, ends.get(tp), None)


def offset_lines(group: str, rows: Sequence[OffsetRow]) -> Iterator[str]:
    """Yield the header and a line for each partition."""
    cells = [
        (
            group,
            row.tp.topic,
            str(row.tp.partition),
            _shown(row.current_offset),
            _shown(row.log_end_offset),
            _shown(row.lag),
            row.member.id if row.member else "-",
            row.member.host if row.member else "-",
            row.member.client_id if row.member else "-",
        )
        for row in rows
    ]
    header = (
        *("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"),
        *("CONSUMER-ID", "HOST", "CLIENT-ID"),
    )
    widths = (_WIDTH, _WIDTH, 10, 15, 15, 15, _WIDTH, _WIDTH, 0)
    return table_lines(header, cells, widths, growing=(0, 1, 6, 7))


def member_lines(group: GroupDescription, *, verbose: bool) -> Iterator[str]:
    """Yield the header and a line for each member, with instance ids if at least one member is static."""
    has_static = any(member.instance_id is not None for member in group.members)
    header = ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS"]
    widths = [_WIDTH, _WIDTH, _INSTANCE_WIDTH, _WIDTH, _WIDTH, 15]
    cells = [
        [
            *(group.group, member.id, member.instance_id or "", member.host, member.client_id),
            str(len(member.partitions)),
            assignment_text(member.partitions),
        ]
        for member in group.members
    ]
    if verbose:
        header.append("ASSIGNMENT")
        widths.append(0)
    if not has_static:
        for row in (header, widths, *cells):
            del row[2]  # type: ignore[attr-defined]
    growing = range(5 if has_static else 4)
    return table_lines(header, [row[: len(header)] for row in cells], widths, growing=growing)


def state_lines(group: GroupDescription) -> Iterator[str]:
    """Yield the header, and a line with the state of the group."""
    node = group.coordinator
    cells = (
        group.group,
        f"{node.host}:{node.port}  ({node.id})",
        group.assignor or "-",
        group.state,
        str(len(group.members)),
    )
    header = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    widths = (_WIDTH, _COORDINATOR_WIDTH, 20, 20, 0)
    return table_lines(header, [cells], widths, growing=(0, 1))


def assignment_text(partitions: Sequence[TopicPartition]) -> str:
    """Return partitions in the format of Kafka's tool, for example `t(0,1), u(3)`; "-" for no partitions."""
    numbers: dict[str, list[str]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(str(number))
    return ", ".join(f"{topic}({','.join(some)})" for topic, some in numbers.items()) or "-"


def remark(group: GroupDescription) -> str | None:
    """Return a remark about a group that is empty or rebalancing; None for other groups."""
    if group.state == EMPTY:
        return f"Consumer group '{group.group}' has no active members."
    if group.state in REBALANCING:
        return f"Warning: Consumer group '{group.group}' is rebalancing."
    return None


def as_json_offsets(group: GroupDescription, rows: Sequence[OffsetRow]) -> dict[str, Any]:
    """Return the JSON object of a group with its partitions."""
    return {
        "group": group.group,
        "state": group.state,
        "partitions": [
            {
                "topic": row.tp.topic,
                "partition": row.tp.partition,
                "current_offset": row.current_offset,
                "log_end_offset": row.log_end_offset,
                "lag": row.lag,
                "consumer_id": row.member.id if row.member else None,
                "host": row.member.host if row.member else None,
                "client_id": row.member.client_id if row.member else None,
            }
            for row in rows
        ],
    }


def as_json_members(group: GroupDescription) -> dict[str, Any]:
    """Return the JSON object of a group with its members."""
    return {
        "group": group.group,
        "state": group.state,
        "members": [
            {
                "consumer_id": member.id,
                "group_instance_id": member.instance_id,
                "host": member.host,
                "client_id": member.client_id,
                "partitions": [
                    {"topic": tp.topic, "partition": tp.partition} for tp in member.partitions
                ],
            }
            for member in group.members
        ],
    }


def as_json_state(group: GroupDescription) -> dict[str, Any]:
    """Return the JSON object of a group with its state."""
    node = group.coordinator
    return {
        "group": group.group,
        "coordinator": {"id": node.id, "host": node.host, "port": node.port},
        "assignment_strategy": group.assignor or None,
        "state": group.state,
        "members": len(group.members),
    }


def _shown(number: int | None) -> str:
    return "-" if number is None else str(number)


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
class GroupSelection:
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


async def watch_groups(client: Client, look: GroupSelection, interval_seconds: float) -> NoReturn:
    """Show the groups again after each interval, until the task is cancelled."""

    async def read() -> tuple[Any, list[rich_text.Text]]:
        found = await look.read(client)
        lines = [*found.remarks, *found.lines]
        return found.result, [
            rich_text.Text(line, no_wrap=True, overflow="ellipsis") for line in lines
        ]

    await watch_lines(read, interval_seconds)
