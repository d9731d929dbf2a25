"""`elect`: elect preferred leaders, or any live replica at the risk of losing records (KIP-460, R61).

Exit code 0: every named partition has the requested leader; a partition may need no election
(ELECTION_NOT_NEEDED). Exit code 1: a named partition does not have the requested leader; the reason is printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import click

import minikafka.client as clients
from minikafka.base.errors import ErrorCode
from minikafka.base.model import TopicPartition
from minikafka.tools.cli.arguments import placement
from minikafka.tools.cli.arguments.options import EXISTING_FILE, client_options
from minikafka.tools.cli.arguments.partition_arguments import (
    Named,
    partitions_argument,
    partitions_of,
)
from minikafka.tools.cli.execution.running import fail_unless, run_with_client, tell_causes_of
from minikafka.tools.cli.terminal.columns import Column, failure, objects
from minikafka.tools.cli.terminal.echo import show
from minikafka.tools.cli.terminal.topic_errors import with_similar_topics


@click.command()
@click.option(
    "--preferred",
    is_flag=True,
    help="Elect the preferred leader (the first replica) if it is in the ISR.",
)
@click.option(
    "--unclean",
    is_flag=True,
    help="Elect any live replica if there is no leader; acknowledged records may be lost.",
)
@partitions_argument
@click.option("--all", "all_", is_flag=True, help="Every partition of the cluster.")
@click.option(
    "--file",
    type=EXISTING_FILE,
    metavar="FILE",
    help="JSON file in the format of Kafka's election tool.",
)
@client_options
def elect(preferred: bool, unclean: bool, named: Named, all_: bool, file: str | None) -> None:
    """Elect leaders of partitions: the preferred ones, or any live replica (--unclean)."""
    if preferred == unclean:
        raise click.UsageError("give exactly one of --preferred and --unclean")
    if sum(map(bool, (any(named), all_, file))) != 1:
        ways = "TOPIC-PARTITION, or --topic (and --partition), or --file, or --all"
        raise click.UsageError(f"name the partitions: {ways}")
    wanted = placement.partitions_file(file) if file else list(named.partitions) or None

    async def work(client: clients.Client) -> dict[TopicPartition, clients.Outcome]:
        whole = await partitions_of(client.admin, named.topics) if named.topics else wanted
        found = await client.admin.elect_leaders(whole, unclean=unclean)
        return await with_similar_topics(client.admin, found)

    found = run_with_client(work)
    outcomes = dict(sorted(found.items()))
    kind = "preferred" if preferred else "unclean"
    rows = objects(_PARTITION, outcomes.items())
    show({"election": kind, "partitions": rows}, _lines(kind, outcomes))
    tell_causes_of(outcomes.values())
    fail_unless(all(is_success(outcome) for outcome in outcomes.values()))


def is_success(outcome: clients.Outcome) -> bool:
    """True if the outcome means that the partition has the requested leader."""
    return outcome.ok or outcome.code is ErrorCode.ELECTION_NOT_NEEDED


def _result(row: tuple[TopicPartition, clients.Outcome]) -> str:
    _, outcome = row
    return "elected" if outcome.ok else "not_needed" if is_success(outcome) else "failed"


def _failure(row: tuple[TopicPartition, clients.Outcome]) -> clients.Outcome:
    """Return the outcome; one of success if the partition needs no election."""
    return clients.Outcome(ErrorCode.NONE) if is_success(row[1]) else row[1]


_PARTITION: Final = (
    Column("", "topic", lambda row: row[0].topic),
    Column("", "partition", lambda row: row[0].partition),
    Column("", "result", _result),
    *failure(_failure),
)
"""The columns of the JSON; the text has Kafka's sentences."""


def _lines(kind: str, outcomes: Mapping[TopicPartition, clients.Outcome]) -> Iterator[str]:
    """Yield one line per partition, in the format of kafka-leader-election.sh."""
    election = f"leader election ({kind.upper()}) for partition"
    for tp, outcome in outcomes.items():
        if outcome.ok:
            yield f"Successfully completed {election} {tp}"
        elif is_success(outcome):
            yield f"Valid replica already elected for partition {tp}"
        else:
            yield f"Error completing {election} {tp}: {outcome}"
    if not outcomes:
        yield "No partition needs an election."
