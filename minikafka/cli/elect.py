"""`elect`: have leaders elected: the preferred ones, or any live replica where data may be lost (KIP-460, R61).

Exit code 0: every partition named is led as asked, also where nothing had to change
(ELECTION_NOT_NEEDED); 1: one is not, with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import click

from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.cli import placement
from minikafka.cli.target import (
    bootstrap_option,
    bootstrap_servers,
    data_option,
    fail_unless,
    json_option,
    run,
    unknown_topics,
)
from minikafka.client import Client, Outcome
from minikafka.client.admin import Admin


@click.command()
@click.option("--preferred", is_flag=True, help="Elect the first replica, where it is in the ISR.")
@click.option("--unclean", is_flag=True, help="Elect any live replica; acked records may be lost.")
@click.option(
    "-t", "--topic", "topics", multiple=True, help="Topic of the --partition, or all of it."
)
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True)
@click.option("--all", "all_", is_flag=True, help="Every partition of the cluster.")
@click.option("--file", metavar="FILE", help="Partitions in the JSON of Kafka's election tool.")
@bootstrap_option
@data_option
@json_option
def elect(
    preferred: bool,
    unclean: bool,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    all_: bool,
    file: str | None,
    bootstrap: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Elect leaders of partitions."""
    if preferred == unclean:
        raise click.UsageError("choose --preferred or --unclean")
    if sum(map(bool, (topics, all_, file))) != 1 or (partitions and not topics):
        raise click.UsageError("name --topic t (and --partition 0), or --file, or --all")
    named = placement.partitions_file(file) if file else None
    if partitions:
        named = placement.given_partitions(topics, partitions)

    async def work(servers: str) -> dict[TopicPartition, Outcome]:
        async with Client(servers) as client:
            wanted = await _of_topics(client.admin, topics) if topics and not partitions else named
            return await client.admin.elect_leaders(wanted, unclean=unclean)

    outcomes = dict(sorted(run(work(bootstrap_servers(bootstrap, data))).items()))
    kind = "preferred" if preferred else "unclean"
    if as_json:
        rows = [as_row(tp, outcome) for tp, outcome in outcomes.items()]
        click.echo(json.dumps({"election": kind, "partitions": rows}))
    else:
        _print(kind, outcomes)
    fail_unless(all(is_success(outcome) for outcome in outcomes.values()))


async def _of_topics(admin: Admin, topics: tuple[str, ...]) -> list[TopicPartition]:
    """All partitions of these topics. Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION)."""
    known = await admin.describe_topics(topics)
    missing = [name for name in topics if name not in known]
    if missing:
        raise unknown_topics(missing)
    return [
        TopicPartition(name, number)
        for name, info in known.items()
        for number in sorted(info.partitions)
    ]


def is_success(outcome: Outcome) -> bool:
    """Whether the partition is led as asked."""
    return outcome.ok or outcome.code is ErrorCode.ELECTION_NOT_NEEDED


def as_row(tp: TopicPartition, outcome: Outcome) -> dict[str, Any]:
    """One partition for a program: `result` is elected, not_needed or failed."""
    failed = not is_success(outcome)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "result": "elected" if outcome.ok else "failed" if failed else "not_needed",
        "error": outcome.code.name if failed else None,
        "message": outcome.message if failed else None,
    }


def _print(kind: str, outcomes: Mapping[TopicPartition, Outcome]) -> None:
    """The sentences of Kafka's own tool, one a partition."""
    for tp, outcome in outcomes.items():
        if outcome.ok:
            click.echo(
                f"Successfully completed leader election ({kind.upper()}) for partition {tp}"
            )
        elif is_success(outcome):
            click.echo(f"Valid replica already elected for partition {tp}")
        else:
            click.echo(
                f"Error completing leader election ({kind.upper()}) for partition {tp}: {outcome}"
            )
    if not outcomes:
        click.echo("No partition needs an election.")
