"""`log-dirs`: show the log directories of brokers and the replicas in them, like kafka-log-dirs --describe.

Exit code 1 if a broker does not answer, or if a named broker or topic does not exist.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, NamedTuple

import click
import rich.text as rich_text

import minikafka.client as clients
import minikafka.client.administration.results as administration
import minikafka.tools.cli.terminal.console as consoles
import minikafka.tools.cli.terminal.progress as displays
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import TopicPartition
from minikafka.base.names import is_internal
from minikafka.tools.cli.arguments import placement
from minikafka.tools.cli.arguments.options import client_options, topics_argument
from minikafka.tools.cli.execution.running import fail_unless, run_with_client
from minikafka.tools.cli.terminal.columns import Column, lay_out, objects
from minikafka.tools.cli.terminal.echo import echo, show
from minikafka.tools.cli.terminal.topic_errors import unknown_topics

_VERSION: Final = 1
"""Version of the JSON format."""

Directories = Mapping[int, Sequence["administration.LogDir"]]


@click.command("log-dirs")
@topics_argument(required=False)
@click.option("--brokers", metavar="1,2,3", help="Brokers to ask (default: all).")
@client_options
def log_dirs(topics: tuple[str, ...], brokers: str | None) -> None:
    """Show the log directories of all brokers, and the size of each replica in them.

    With TOPIC, show only the replicas of these topics. The JSON of --json is that of kafka-log-dirs --describe.
    """
    chosen = placement.broker_list(brokers) if brokers else None

    async def work(client: clients.Client) -> tuple[Directories, list[int]]:
        return await _read(client, topics, chosen)

    found, silent = run_with_client(work)
    show(as_json_object(found), lambda: _print(found, folds_internal=not topics))
    for broker in silent:
        echo(f"minikafka: broker {broker} did not answer", err=True)
    fail_unless(not silent)


async def _read(
    client: clients.Client, topics: Sequence[str], brokers: Sequence[int] | None
) -> tuple[Directories, list[int]]:
    """Return the log directories by broker, and the ids of the brokers that did not answer. Raises KafkaError."""
    admin = client.admin
    alive = (await admin.describe_cluster()).brokers
    unknown = [id_ for id_ in brokers or () if id_ not in alive]
    if unknown:
        text = f"there is no live broker {', '.join(map(str, unknown))}"
        ids = ", ".join(map(str, sorted(alive)))
        raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"{text}; the live brokers are {ids}")
    partitions = None
    if topics:
        known = {topic.name: topic for topic in (await admin.describe(topics))[1]}
        if missing := [name for name in topics if name not in known]:
            raise unknown_topics(missing)
        partitions = [
            TopicPartition(topic.name, number)
            for topic in known.values()
            for number in topic.partitions
        ]
    found = await admin.describe_log_dirs(partitions, brokers)
    asked = alive if brokers is None else brokers
    return found, sorted(set(asked) - found.keys())


class _Row(NamedTuple):
    """A replica, or a remark in its place."""

    name: str
    size: int | None = None
    offset_lag: int | None = None
    is_future: bool = False


_COLUMNS: Final = (
    Column("replica", "", lambda row: f"{row.name} (future)" if row.is_future else row.name),
    Column("", "partition", attrgetter("name")),
    Column(
        "size",
        "size",
        attrgetter("size"),
        text=lambda size: "-" if size is None else displays.size(size),
    ),
    Column("offset lag", "offsetLag", attrgetter("offset_lag")),
    Column("", "isFuture", attrgetter("is_future")),
)


def as_json_object(found: Directories) -> dict[str, Any]:
    """Return the JSON object of Kafka's tool. An error is the name of its code, null without an error."""
    return {
        "version": _VERSION,
        "brokers": [
            {
                "broker": broker,
                "logDirs": [
                    {
                        "logDir": directory.path,
                        "error": None if directory.outcome.ok else directory.outcome.code.name,
                        "partitions": objects(_COLUMNS, _rows(directory.replicas)),
                    }
                    for directory in directories
                ],
            }
            for broker, directories in sorted(found.items())
        ],
    }


def _print(found: Directories, *, folds_internal: bool) -> None:
    """Print a line for each log directory, and below it a line for each replica."""
    places, rows = [], []
    for broker, directories in sorted(found.items()):
        for directory in directories:
            own = _shown_rows(directory, folds_internal=folds_internal)
            places.append((f"broker {broker}  {directory.path}", len(own)))
            rows += own
    console = consoles.plain_console()
    width = console.width if console.is_terminal else None
    (titles, *replicas), _ = lay_out(_COLUMNS, rows, width)
    lines = titles
    for place, count in places:
        lines += [rich_text.Text(place, "bold"), *itertools.chain(*replicas[:count])]
        replicas = replicas[count:]
    consoles.print_lines(console, lines)


def _rows(replicas: Iterable[administration.StoredReplica]) -> list[_Row]:
    return [_Row(str(one.tp), one.size, one.offset_lag, one.is_future) for one in sorted(replicas)]


def _shown_rows(directory: administration.LogDir, *, folds_internal: bool) -> list[_Row]:
    """Return the rows of the text: the replicas of internal topics may be one row, and an error is the last row."""
    folded = [one for one in directory.replicas if folds_internal and is_internal(one.tp.topic)]
    rows = _rows(set(directory.replicas) - set(folded))
    if folded:
        total, lag = sum(one.size for one in folded), max(one.offset_lag for one in folded)
        rows.append(_Row(f"{len(folded)} of internal topics", total, lag))
    if not directory.outcome.ok:
        rows.append(_Row(str(directory.outcome)))
    return rows or [_Row("no replicas")]
