"""`topics delete-records`: as kafka-delete-records.sh."""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Final

import click

import minikafka.client as clients
import minikafka.client.administration.results as administration
from minikafka.base.config.keys import LONG_MAX
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.arguments import placement
from minikafka.tools.cli.arguments.options import EXISTING_FILE, client_options
from minikafka.tools.cli.arguments.partition_arguments import (
    Named,
    partitions_argument,
    partitions_of,
)
from minikafka.tools.cli.execution.running import fail_unless, run_with_client, tell_causes_of
from minikafka.tools.cli.terminal.columns import Column, failure, labelled, objects
from minikafka.tools.cli.terminal.echo import echo, show
from minikafka.tools.cli.terminal.topic_errors import require_partitions

_HIGH_WATERMARK: Final = -1


_DELETED: Final = (
    Column("partition", "", itemgetter(0)),
    Column("", "topic", lambda row: row[0].topic),
    Column("", "partition", lambda row: row[0].partition),
    Column(
        "low_watermark",
        "low_watermark",
        lambda row: row[1].low_watermark if row[1].outcome.ok else None,
    ),
    *failure(lambda row: row[1].outcome),
)


@click.command("delete-records")
@partitions_argument
@click.option(
    "--before-offset",
    type=click.IntRange(_HIGH_WATERMARK, LONG_MAX),
    metavar="N",
    help="First offset to keep; -1 deletes all committed records.",
)
@click.option(
    "--offset-json-file",
    "file",
    type=EXISTING_FILE,
    metavar="FILE",
    help="JSON file of Kafka's kafka-delete-records.",
)
@client_options
def delete_records(named: Named, before_offset: int | None, file: str | None) -> None:
    """Delete the records below an offset in each named partition, on all live replicas."""
    _check(named, before_offset, file)
    before = placement.offsets_file(file) if file else {}

    async def work(client: clients.Client) -> dict[TopicPartition, administration.DeletedRecords]:
        if before_offset is not None:
            whole = await partitions_of(client.admin, named.topics) if named.topics else ()
            before.update(dict.fromkeys((*named.partitions, *whole), before_offset))
        await require_partitions(client.admin, before)
        return await client.admin.delete_records(before)

    results = run_with_client(work)
    show(objects(_DELETED, sorted(results.items())), lambda: _print(results, before))
    tell_causes_of(deleted.outcome for deleted in results.values())
    fail_unless(all(deleted.outcome.ok for deleted in results.values()))


def _check(named: Named, before_offset: int | None, file: str | None) -> None:
    """Raise UsageError unless exactly one is given: partitions with --before-offset, or --offset-json-file."""
    if file is not None and (any(named) or before_offset is not None):
        raise click.UsageError(
            "--offset-json-file cannot be combined with partitions or --before-offset"
        )
    if file is None and (not any(named) or before_offset is None):
        raise click.UsageError(
            "name the partitions and the first offset to keep: t-0 --before-offset 100, "
            "or --offset-json-file FILE"
        )


def _print(
    results: Mapping[TopicPartition, administration.DeletedRecords],
    before: Mapping[TopicPartition, int],
) -> None:
    """Print one line per partition, in the format of kafka-delete-records; remarks on standard error.

    `before`: the requested offsets.
    """
    for tp, deleted in sorted(results.items()):
        outcome, low_watermark = deleted
        if not outcome.ok:
            echo(f"minikafka: {outcome.code.name}: {_reason(tp, outcome)}", err=True)
            continue
        echo(labelled(_DELETED, (tp, deleted)))
        if before[tp] != _HIGH_WATERMARK and before[tp] < low_watermark:
            remark = f"nothing was deleted: its log begins at offset {low_watermark} already"
            echo(f"minikafka: {tp}: {remark}", err=True)


def _reason(tp: TopicPartition, outcome: clients.Outcome) -> str:
    if outcome.reason.startswith(f"{tp.topic}: "):
        return f"{tp}: there is no topic {tp.topic}"
    return outcome.reason if str(tp) in outcome.reason else f"{tp}: {outcome.reason}"
