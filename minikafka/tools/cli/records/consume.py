"""`consume`: print the records of a topic to standard output, alone or as a member of a group."""

from __future__ import annotations

import sys
from typing import Literal

import click

import minikafka.client as clients
import minikafka.tools.cli.records.group_member as group_members
from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.command_config import aiokafka_security
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers
from minikafka.tools.cli.arguments.options import (
    connection_options,
    timeout_option,
    topics_argument,
)
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.records.offsets import Range, parse_offsets
from minikafka.tools.cli.records.record_format import (
    COLUMNS,
    Writer,
    format_writer,
    line_writer,
    unescape,
    write_json,
)
from minikafka.tools.cli.records.topic_reader import Reading
from minikafka.tools.cli.terminal.echo import json_option, wants_json
from minikafka.tools.cli.terminal.topic_errors import explain_topic_errors

_EPILOG = r"""
Formats of -f: %s or %v value, %k key, %h headers (name=value,...), %t topic, %p partition, %o offset,
%T or %d timestamp in Unix ms, %S %V %K sizes of value and key (-1 for null), %H number of headers, %R size
of the value as four bytes, %h{%k=%v } each header, %% a percent sign; \n \r \t \xNN \NNN \\. A format
prints no line end of its own: -f '%p:%o %k=%s\n'.

TIME is Unix milliseconds (ten digits: seconds), or a date and time such as 2026-11-22T13:00:00Z, UTC
unless it has another zone.
"""


def _columns(context: click.Context, option: click.Parameter, text: str | None) -> list[str]:
    names = [name.strip() for name in text.split(",")] if text is not None else []
    for name in names:
        if name not in COLUMNS:
            allowed = ", ".join(COLUMNS)
            problem = f"{name!r} is not one of {allowed} (-K prints the key)"
            raise click.BadParameter(problem, context, option)
    return names


@click.command(epilog=_EPILOG)
@topics_argument(required=False)
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    shell_complete=completion.groups,
    help="Read as a member of this consumer group, which shares the partitions and commits.",
)
@click.option(
    "-p",
    "--partition",
    type=click.IntRange(0),
    metavar="N",
    help="Read only this partition (default: all).",
)
@click.option(
    "-o",
    "--offset",
    "where",
    multiple=True,
    callback=parse_offsets,
    metavar="WHERE",
    help="Where to start in each partition: beginning (default), end, offset N, -N (the last N records), "
    "+N (without the first N) or s@TIME. Where to stop: e@TIME, before the first record of that time, or "
    "FROM:TO, before offset TO. A start and a stop can be combined: -o s@TIME -o e@TIME.",
)
@click.option(
    "--from-beginning", is_flag=True, help="Same as -o beginning, as in Kafka's console consumer."
)
@click.option(
    "-e", "--exit", "until_end", is_flag=True, help="Stop at the current end of each partition."
)
@click.option(
    "-n",
    "-c",
    "--num",
    "--count",
    "count",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after N records.",
)
@click.option(
    "-f", "--format", "layout", metavar="FORMAT", help="Print records in a format; see below."
)
@click.option(
    "-K",
    "--key-delimiter",
    metavar="DELIM",
    help=r"Print the key and DELIM in front of each value; \t is a tab.",
)
@click.option(
    "--print",
    "columns",
    callback=_columns,
    metavar="NAMES",
    help="Print these in front of each record, separated by tabs: any of timestamp,partition,offset,headers.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="With read_committed, leave out records of aborted transactions, and end before the first open one.",
)
@click.option("-q", "--quiet", is_flag=True, help="Do not report the end of a partition.")
@connection_options
@timeout_option
@json_option
def consume(
    topics: tuple[str, ...],
    group: str | None,
    partition: int | None,
    where: Range,
    from_beginning: bool,
    until_end: bool,
    count: int | None,
    layout: str | None,
    key_delimiter: str | None,
    columns: list[str],
    isolation_level: str,
    quiet: bool,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Print the records of TOPIC, in order within each partition, and wait for more until Ctrl-C.

    On standard error a line tells where a partition ends (-q: none).

    With --group, several commands share the partitions of one or more topics. Without TOPIC, they share the
    topics that the group has read before. A partition is read from its committed offset. Without a committed
    offset it is read from the beginning, or from the end with -o end. The offsets of printed records are
    committed every few seconds and when the command ends. Lines on standard error show which partitions are
    assigned and revoked (-q: none).
    """
    if from_beginning and where.start != "earliest":
        raise click.UsageError("--from-beginning and -o name different places to start")
    write = _writer(layout, key_delimiter, columns, wants_json())
    if sys.stdout is None:
        raise MinikafkaError("standard output is closed: the records cannot be printed")

    def show(record: clients.ConsumedRecord) -> None:
        _print(write(record))

    committed = isolation_level == "read_committed"

    if group is not None:
        start = _group_start(where, partition)
        servers = bootstrap_servers(bootstrap, data)
        session = group_members.GroupReading(
            group, topics, start, until_end, count, quiet, aiokafka_security()
        )
        run_with_client(
            lambda client: session.run(client, servers, show), servers, read_committed=committed
        )
        return
    if len(topics) != 1:
        raise click.UsageError("name exactly one topic, as TOPIC or as -t TOPIC")
    (topic,) = topics
    reading = Reading(topic, partition, where, until_end, count, quiet, committed)
    with explain_topic_errors(topic):
        run_with_client(
            lambda client: reading.run(client, show),
            bootstrap_servers(bootstrap, data),
            late="not all records arrived",
            read_committed=committed,
        )


def _group_start(where: Range, partition: int | None) -> Literal["earliest", "latest"]:
    """Return where the group begins to read a partition without a committed offset, as the option -o says.

    Raises UsageError if --partition is given, or if -o is neither the beginning nor the end.
    """
    if partition is not None:
        raise click.UsageError(
            "--partition cannot be used with --group: the group shares partitions"
        )
    if where.stop is not None or where.start not in ("earliest", "latest"):
        raise click.UsageError(
            "with --group, -o must be beginning or end; see groups reset-offsets"
        )
    return "earliest" if where.start == "earliest" else "latest"


def _writer(
    layout: str | None, key_delimiter: str | None, columns: list[str], as_json: bool
) -> Writer:
    """Return the record writer for these options. Raises UsageError for options that exclude each other."""
    is_line = key_delimiter is not None or bool(columns)
    if [layout is not None, is_line, as_json].count(True) > 1:
        raise click.UsageError("choose one of these formats: -f, or --json, or -K and --print")
    if as_json:
        return write_json
    if layout is None:
        return line_writer(columns, unescape(key_delimiter) if key_delimiter is not None else None)
    try:
        return format_writer(layout)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="-f") from None


def _print(data: bytes) -> None:
    """Write bytes to standard output, and flush it. Raises BrokenPipeError and MinikafkaError."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise MinikafkaError(f"standard output: {error.strerror}") from error
