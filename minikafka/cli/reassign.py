"""`reassign`: move partitions to other brokers, and follow, look at, cancel or propose such moves (K1–K3).

Exit code 0: every partition named ended where it should (or, with `--no-wait`, began to move); 1: one was
rejected, is elsewhere, or is not there yet; 130: Ctrl-C, after saying what completed. Ctrl-C never
cancels a reassignment: the controller goes on with it.
"""

from __future__ import annotations

from typing import Final

import click

from minikafka.cli import placement
from minikafka.cli.reassign_jobs import Cancel, Given, ListMoves, Move, Verify
from minikafka.cli.reassign_proposal import Propose
from minikafka.cli.target import (
    bootstrap_option,
    bootstrap_servers,
    data_option,
    fail_unless,
    json_option,
    run,
    target_options,
)
from minikafka.client import Client

_ACTIONS: Final = ("verify", "list", "cancel", "generate")


@click.command()
@click.option("-t", "--topic", "topics", multiple=True, help="Topic of the --partition.")
@click.option("-p", "--partition", "partitions", type=click.IntRange(0), multiple=True)
@click.option("--replicas", multiple=True, metavar="3,4,5", help="Its brokers, preferred first.")
@click.option("--file", metavar="PLAN", help="A plan in the JSON of Kafka's reassignment tool.")
@click.option("--verify", is_flag=True, help="Say what became of the moves.")
@click.option("--list", "list_", is_flag=True, help="Show all moves under way.")
@click.option("--cancel", is_flag=True, help="Go back to the replicas of before.")
@click.option("--generate", is_flag=True, help="Propose a plan for --topics over --brokers.")
@click.option("--topics", "spread", metavar="A,B", help="With --generate: topics to spread.")
@click.option("--brokers", metavar="1,2,3", help="With --generate: brokers to use (default: all).")
@click.option(
    "--throttle",
    "bytes_per_second",
    type=click.IntRange(1),
    metavar="BYTES",
    help="Bytes/s a broker may spend on it; removed when all is completed.",
)
@click.option("--no-wait", is_flag=True, help="Return when the controller has accepted.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="Wait no longer; the moves go on.",
)
@bootstrap_option
@data_option
@json_option
def reassign(
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    replicas: tuple[str, ...],
    file: str | None,
    verify: bool,
    list_: bool,
    cancel: bool,
    generate: bool,
    spread: str | None,
    brokers: str | None,
    bytes_per_second: int | None,
    no_wait: bool,
    timeout: float | None,
    bootstrap: str | None,
    data: str | None,
    as_json: bool,
) -> None:
    """Move partitions to other brokers and wait until they are there.

    Ctrl-C says what is completed and leaves the rest running.
    """
    given = Given(
        topics,
        partitions,
        replicas,
        file,
        spread,
        brokers,
        bytes_per_second,
        not no_wait,
        timeout,
        as_json,
        target_options(bootstrap, data),
    )
    chosen = [
        name for name, on in zip(_ACTIONS, (verify, list_, cancel, generate), strict=True) if on
    ]
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} and --{chosen[1]} cannot go together")
    job = _job(chosen[0] if chosen else None, given)

    async def work(servers: str) -> bool:
        async with Client(servers) as client:
            return await job.do(client.admin)

    fail_unless(run(work(bootstrap_servers(bootstrap, data))))


def _job(action: str | None, given: Given) -> Move | Verify | ListMoves | Cancel | Propose:
    """What to do, checked as far as it can be without the cluster. Raises UsageError."""
    if action != "generate" and (given.spread or given.brokers):
        raise click.UsageError("--topics and --brokers belong to --generate")
    if action and (given.throttle or (given.timeout and action != "cancel")):
        raise click.UsageError(f"--throttle and --timeout do not go with --{action}")
    if action == "verify":
        return Verify(given, given.plan() if given.replicas or given.file else given.named())
    if action == "list":
        return ListMoves(given)
    if action == "cancel":
        return Cancel(given, given.named())
    if action == "generate":
        if not given.spread:
            raise click.UsageError("--generate needs --topics a,b")
        names = list(dict.fromkeys(name.strip() for name in given.spread.split(",")))
        brokers = placement.broker_list(given.brokers) if given.brokers else None
        return Propose(names, brokers, as_json=given.as_json)
    return Move(given, given.plan())
