"""`groups describe`: in the columns of kafka-consumer-groups.sh, or as JSON.

A missing value is None in a row, and "-" in the output. Values are missing if a partition has no committed
offset, no leader, or no member that reads it. With `--watch` the output is printed again after each interval.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Any, Final, NamedTuple, NoReturn

import click
import rich.text as rich_text

import minikafka.client as clients
from minikafka.base.model import TopicPartition
from minikafka.client import Client
from minikafka.client.administration.group_admin import GroupDescription, MemberDescription
from minikafka.client.log_offsets import LATEST
from minikafka.tools.cli.arguments.options import client_options, groups_argument
from minikafka.tools.cli.execution.running import fail_unless, run_with_client
from minikafka.tools.cli.terminal.columns import Column, lines, objects
from minikafka.tools.cli.terminal.echo import echo, show, wants_json
from minikafka.tools.cli.terminal.topic_errors import similar_groups
from minikafka.tools.cli.terminal.watch import watch_lines, watch_options

DEAD: Final = "Dead"


EMPTY: Final = "Empty"


REBALANCING: Final = ("PreparingRebalance", "CompletingRebalance")


_WIDTH: Final = 15


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


def offset_columns(group: str) -> list[Column]:
    """Return the columns of the partitions of a group. A row is an `OffsetRow`."""
    return [
        Column("GROUP", "", lambda _: group, _WIDTH),
        Column("TOPIC", "topic", attrgetter("tp.topic"), _WIDTH),
        Column("PARTITION", "partition", attrgetter("tp.partition"), 10, False),
        Column("CURRENT-OFFSET", "current_offset", attrgetter("current_offset"), 15, False),
        Column("LOG-END-OFFSET", "log_end_offset", attrgetter("log_end_offset"), 15, False),
        Column("LAG", "lag", attrgetter("lag"), 15, False),
        Column("CONSUMER-ID", "consumer_id", lambda row: row.member and row.member.id, _WIDTH),
        Column("HOST", "host", lambda row: row.member and row.member.host, _WIDTH),
        Column("CLIENT-ID", "client_id", lambda row: row.member and row.member.client_id),
    ]


def member_columns(group: GroupDescription, *, verbose: bool) -> list[Column]:
    """Return the columns of the members, with instance ids in the text if at least one member is static."""
    has_static = any(member.instance_id is not None for member in group.members)
    instance = "GROUP-INSTANCE-ID" if has_static else ""
    return [
        Column("GROUP", "", lambda _: group.group, _WIDTH),
        Column("CONSUMER-ID", "consumer_id", attrgetter("id"), _WIDTH),
        Column(
            instance, "group_instance_id", attrgetter("instance_id"), text=lambda one: one or ""
        ),
        Column("HOST", "host", attrgetter("host"), _WIDTH),
        Column("CLIENT-ID", "client_id", attrgetter("client_id"), _WIDTH),
        Column("#PARTITIONS", "", lambda one: len(one.partitions), 15, False),
        Column(
            "ASSIGNMENT" if verbose else "",
            "",
            lambda one: assignment_text(one.partitions),
            0,
            False,
        ),
        Column("", "partitions", lambda one: objects(_PARTITION, one.partitions)),
    ]


_PARTITION: Final = (
    Column("", "topic", attrgetter("topic")),
    Column("", "partition", attrgetter("partition")),
)


STATE: Final = (
    Column("GROUP", "group", attrgetter("group"), _WIDTH),
    Column(
        "COORDINATOR (ID)",
        "coordinator",
        lambda group: {key: getattr(group.coordinator, key) for key in ("id", "host", "port")},
        25,
        text="{0[host]}:{0[port]}  ({0[id]})".format,
    ),
    Column(
        "ASSIGNMENT-STRATEGY",
        "assignment_strategy",
        lambda group: group.assignor or None,
        20,
        False,
    ),
    Column("STATE", "state", attrgetter("state"), 20, False),
    Column("#MEMBERS", "members", lambda group: len(group.members)),
)
"""A row is a `GroupDescription`."""


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
        result: list[dict[str, Any]] = []
        text: list[str] = []
        for group in found:
            shown, block = self._shown(group, rows.get(group.group, []))
            result.append(shown)
            text += ["", *block] if text and block else block
        return Looked(result, text, remarks, not missing)

    def _shown(
        self, group: GroupDescription, offsets: list[OffsetRow]
    ) -> tuple[dict[str, Any], list[str]]:
        """Return a group as a JSON object and as lines; without rows, there are no lines."""
        if self.aspect is Aspect.STATE:
            return objects(STATE, [group])[0], list(lines(STATE, [group]))
        rows: Sequence[Any] = offsets if self.aspect is Aspect.OFFSETS else group.members
        if self.aspect is Aspect.OFFSETS:
            key, columns = "partitions", offset_columns(group.group)
        else:
            key, columns = "members", member_columns(group, verbose=self.verbose)
        head = {"group": group.group, "state": group.state, key: objects(columns, rows)}
        return head, list(lines(columns, rows)) if rows else []


@click.command()
@groups_argument
@click.option(
    "--offsets", is_flag=True, help="Show each partition with its offsets and lag (default)."
)
@click.option("--members", is_flag=True, help="Show the members.")
@click.option("--state", is_flag=True, help="Show coordinator, assignor, state and size.")
@click.option("--verbose", is_flag=True, help="With --members: show the partitions of each.")
@watch_options
@client_options
def describe(
    groups: tuple[str, ...],
    all_groups: bool,
    offsets: bool,
    members: bool,
    state: bool,
    verbose: bool,
    watch: float | None,
) -> None:
    """Show the partitions of each GROUP: committed offset, log end offset, lag, and the member that reads them.

    With --json, print one line: an array with an object for each group. With --json and --watch, print such a
    line at each interval.
    """
    if [offsets, members, state].count(True) > 1:
        raise click.UsageError("choose one of --offsets, --members and --state")
    if verbose and not members:
        raise click.UsageError("--verbose can only be used with --members")
    aspect = Aspect.MEMBERS if members else Aspect.STATE if state else Aspect.OFFSETS
    look = GroupSelection(groups, aspect, verbose)

    async def work(client: clients.Client) -> bool:
        if watch is not None:
            await watch_groups(client, look, watch)
        found = await look.read(client)
        for line in found.remarks:
            echo(line, err=True)
        show(found.result, found.lines)
        return found.has_all

    fail_unless(run_with_client(work))


async def watch_groups(client: Client, look: GroupSelection, interval_seconds: float) -> NoReturn:
    """Show the groups again after each interval, until the task is cancelled."""

    async def read() -> tuple[Any, list[rich_text.Text]]:
        found = await look.read(client)
        return found.result, [
            rich_text.Text(line, no_wrap=True, overflow="ellipsis")
            for line in (*found.remarks, *found.lines)
        ]

    await watch_lines(read, interval_seconds)
