"""`topics delete-records`: delete records from the start of partitions, as kafka-delete-records does.

Exit code 1 if the records of a named partition were not deleted; the reason is printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import click

from minikafka.base.config.keys import LONG_MAX
from minikafka.base.model import TopicPartition
from minikafka.cli.arguments import placement
from minikafka.cli.arguments.find_cluster import bootstrap_servers
from minikafka.cli.arguments.options import (
    EXISTING_FILE,
    bootstrap_option,
    data_option,
    timeout_option,
)
from minikafka.cli.arguments.partition_arguments import Named, partitions_argument, partitions_of
from minikafka.cli.execution.running import fail_unless, run_with_client, tell_causes_of
from minikafka.cli.terminal.echo import echo
from minikafka.cli.terminal.result import json_option, show
from minikafka.cli.terminal.topic_errors import require_partitions

if TYPE_CHECKING:
    from minikafka.client import Client
    from minikafka.client.admin_results import Deleted, Outcome

_HIGH_WATERMARK: Final = -1


@click.command("delete-records", short_help="Delete records from the start of partitions.")
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
@bootstrap_option
@data_option
@timeout_option
@json_option
def delete_records(
    named: Named,
    before_offset: int | None,
    file: str | None,
    bootstrap: str | None,
    data: str | None,
) -> None:
    """Delete the records below an offset in each named partition, on all live replicas."""
    _check(named, before_offset, file)
    before = placement.offsets_file(file) if file else {}

    async def work(client: Client) -> dict[TopicPartition, Deleted]:
        if before_offset is not None:
            whole = await partitions_of(client.admin, named.topics) if named.topics else ()
            before.update(dict.fromkeys((*named.partitions, *whole), before_offset))
        await require_partitions(client.admin, before)
        return await client.admin.delete_records(before)

    results = run_with_client(work, bootstrap_servers(bootstrap, data))
    rows = [_row(tp, deleted) for tp, deleted in sorted(results.items())]
    show(rows, lambda: _print(results, before))
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


def _row(tp: TopicPartition, deleted: Deleted) -> dict[str, object]:
    outcome = deleted.outcome
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "low_watermark": deleted.low_watermark if outcome.ok else None,
        "error": None if outcome.ok else outcome.code.name,
        "message": None if outcome.ok else outcome.reason,
    }


def _print(results: Mapping[TopicPartition, Deleted], before: Mapping[TopicPartition, int]) -> None:
    """Print one line per partition, in the format of kafka-delete-records; remarks on standard error.

    `before`: the requested offsets.
    """
    for tp, (outcome, low_watermark) in sorted(results.items()):
        if not outcome.ok:
            echo(f"minikafka: {outcome.code.name}: {_reason(tp, outcome)}", err=True)
            continue
        echo(f"partition: {tp}\tlow_watermark: {low_watermark}")
        if before[tp] != _HIGH_WATERMARK and before[tp] < low_watermark:
            remark = f"nothing was deleted: its log begins at offset {low_watermark} already"
            echo(f"minikafka: {tp}: {remark}", err=True)


def _reason(tp: TopicPartition, outcome: Outcome) -> str:
    if outcome.reason.startswith(f"{tp.topic}: "):
        return f"{tp}: there is no topic {tp.topic}"
    return outcome.reason if str(tp) in outcome.reason else f"{tp}: {outcome.reason}"
