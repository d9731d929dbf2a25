"""The arguments of `groups reset-offsets`, in the syntax of Kafka's tool: scopes, scenarios and CSV files."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

import click

from minikafka.base.errors import MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.records.offsets import parse_time
from minikafka.tools.cli.terminal.columns import Column

_DURATION: Final = re.compile(
    r"P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,3})?)S)?)?", re.IGNORECASE
)
Plan: TypeAlias = dict[str, dict[TopicPartition, int]]
"""New offsets by group and partition."""


class Scenario(NamedTuple):
    """The rule for the new offsets: the name of a command-line option, and the option's value, if any."""

    name: str
    value: Any = None


class TopicScope(NamedTuple):
    """A topic, or some partitions of a topic. `numbers`: partition numbers, () for all partitions."""

    topic: str
    numbers: tuple[int, ...] = ()


def parse_scopes(
    context: click.Context | None, option: click.Parameter | None, texts: Sequence[str]
) -> list[TopicScope]:
    """Parse `TOPIC` and `TOPIC:0,1`; a click callback. Raises BadParameter."""
    found = []
    for text in texts:
        topic, separator, numbers = text.partition(":")
        if not topic or (separator and not re.fullmatch(r"\d+(,\d+)*", numbers)):
            problem = f"{text!r} must be TOPIC, or TOPIC:0,1,2 for some of its partitions"
            raise click.BadParameter(problem, context, option)
        found.append(TopicScope(topic, tuple(map(int, numbers.split(","))) if numbers else ()))
    return found


def parse_datetime(
    context: click.Context | None, option: click.Parameter | None, text: str | None
) -> int | None:
    """Parse a date and time (UTC if it has no zone) as Unix ms; a click callback. Raises BadParameter."""
    if text is None:
        return None
    try:
        return parse_time(text).wall_ms
    except ValueError as error:
        raise click.BadParameter(str(error), context, option) from None


def parse_duration(
    context: click.Context | None, option: click.Parameter | None, text: str | None
) -> int | None:
    """Parse a duration such as P1DT2H30M as milliseconds; a click callback. Raises BadParameter."""
    if text is None:
        return None
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()):
        problem = f"{text!r} is not a duration: give PnDTnHnMnS, for example PT2H or P1DT30M"
        raise click.BadParameter(problem, context, option)
    days, hours, minutes, seconds = (float(number or 0) for number in match.groups())
    return round(1000 * (seconds + 60 * (minutes + 60 * (hours + 24 * days))))


def chosen_scenario(given: Mapping[str, Any]) -> Scenario:
    """Return the scenario option that the user gave. Raises UsageError unless the user gave exactly one."""
    chosen = [
        Scenario(name, value)
        for name, value in given.items()
        if value is not None and value is not False
    ]
    if len(chosen) != 1:
        names = ", ".join(f"--{name}" for name in given)
        raise click.UsageError(f"choose one of {names}")
    return chosen[0]


def write_csv(plan: Plan, *, with_group: bool) -> Iterator[str]:
    """Yield the CSV lines that `--export` prints: topic, partition and offset.

    If `with_group` is set, each line begins with the group.
    """
    for group, offsets in plan.items():
        for tp, offset in offsets.items():
            out = io.StringIO()
            row = (tp.topic, tp.partition, offset)
            csv.writer(out, lineterminator="").writerow((group, *row) if with_group else row)
            yield out.getvalue()


def read_csv(data: bytes, groups: Sequence[str]) -> Plan:
    """Return the new offsets from the CSV text that `--export` printed, in UTF-8. Raises MinikafkaError.

    Lines without a group require a single group in `groups`. Lines of groups not in `groups` are ignored.
    """
    plan: Plan = {group: {} for group in groups}
    for number, row in enumerate(_rows(data), start=1):
        if not row:
            continue
        named = row if len(row) == len(_Line._fields) else [*groups[:1], *row]
        if len(named) != len(_Line._fields) or (len(row) < len(named) and len(groups) != 1):
            allowed = "topic,partition,offset for one group, or group,topic,partition,offset"
            raise MinikafkaError(f"line {number} is not {allowed}: {','.join(row)!r}")
        line = _Line(*named)
        try:
            tp, offset = TopicPartition(line.topic, int(line.partition)), int(line.offset)
        except ValueError:
            problem = f"line {number}: partition and offset must be numbers, got {','.join(row)!r}"
            raise MinikafkaError(problem) from None
        if line.group in plan:
            plan[line.group][tp] = offset
    return plan


def _rows(data: bytes) -> Iterator[list[str]]:
    """Yield the fields of each line of a CSV file. Raises MinikafkaError."""
    try:
        reader = csv.reader(io.StringIO(data.decode()))
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        raise MinikafkaError(f"line {line} is not UTF-8 text: write the file in UTF-8") from None
    try:
        yield from reader
    except csv.Error as fault:
        raise MinikafkaError(f"line {reader.line_num} is not CSV: {fault}") from None


class _Line(NamedTuple):
    group: str
    topic: str
    partition: str
    offset: str


def clamped(
    wanted: Mapping[TopicPartition, int],
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    warn: Callable[[str], None],
) -> dict[TopicPartition, int]:
    """Return the offsets. Replace an offset outside of the log by the start or end of the log, and warn."""
    found = {}
    for tp, offset in wanted.items():
        found[tp] = max(first[tp], min(offset, end[tp]))
        if found[tp] != offset:
            side = "above the end" if offset > end[tp] else "below the start"
            warn(f"offset {offset} is {side} of {tp}: {found[tp]} is used instead")
    return found


PLAN: Final = (
    Column("GROUP", "group", itemgetter(0), 15),
    Column("TOPIC", "topic", itemgetter(1), 15),
    Column("PARTITION", "partition", itemgetter(2), 10, False),
    Column("NEW-OFFSET", "new_offset", itemgetter(3)),
)
"""The columns of new offsets."""


def plan_rows(plan: Plan) -> list[tuple[str, str, int, int]]:
    """Return a row for each new offset: group, topic, partition, offset."""
    return [(g, tp.topic, tp.partition, at) for g, p in plan.items() for tp, at in p.items()]


def unknown_partitions(
    wanted: Iterable[TopicPartition], existing: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """Return the partitions of `wanted` that are not in `existing`, sorted."""
    return sorted(set(wanted) - set(existing))
