"""`elect`: elect preferred leaders, or any live replica at the risk of losing records (KIP-460, R61).

Exit code 0: every named partition has the requested leader; a partition may need no election
(ELECTION_NOT_NEEDED). Exit code 1: a named partition does not have the requested leader; the reason is printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from minikafka.tools.cli.terminal.echo import echo, show
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
    rows = [as_row(tp, outcome) for tp, outcome in outcomes.items()]
    show({"election": kind, "partitions": rows}, lambda: _print(kind, outcomes))
    tell_causes_of(outcomes.values())
    fail_unless(all(is_success(outcome) for outcome in outcomes.values()))


def is_success(outcome: clients.Outcome) -> bool:
    """True if the outcome means that the partition has the requested leader."""
    return outcome.ok or outcome.code is ErrorCode.ELECTION_NOT_NEEDED


def as_row(tp: TopicPartition, outcome: clients.Outcome) -> dict[str, Any]:
    """Return the JSON object of one partition, for `--json`; `result` is elected, not_needed or failed."""
    failed = not is_success(outcome)
    return {
        "topic": tp.topic,
        "partition": tp.partition,
        "result": "elected" if outcome.ok else "failed" if failed else "not_needed",
        "error": outcome.code.name if failed else None,
        "message": outcome.reason if failed else None,
    }


def _print(kind: str, outcomes: Mapping[TopicPartition, clients.Outcome]) -> None:
    """Print one line per partition, in the format of kafka-leader-election.sh."""
    for tp, outcome in outcomes.items():
        if outcome.ok:
            echo(f"Successfully completed leader election ({kind.upper()}) for partition {tp}")
        elif is_success(outcome):
            echo(f"Valid replica already elected for partition {tp}")
        else:
            echo(f"Error completing leader election ({kind.upper()}) for partition {tp}: {outcome}")
    if not outcomes:
        echo("No partition needs an election.")
