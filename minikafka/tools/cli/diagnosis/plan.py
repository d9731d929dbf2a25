"""`plan`: show what the controller would write to ZooKeeper and send to brokers; nothing is changed.

The active controller runs its state machine on a copy of its state. Exit code 1 if no controller answers, or
if the named broker, topic or partition does not exist; 2 for a usage error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import click

import minikafka.broker.rpc.messages as messages
import minikafka.tools.cluster.local as clusters
import minikafka.tools.cluster.observation.state as cluster_state
import minikafka.tools.explain.forecast as forecasts
import minikafka.tools.explain.trace as tracing
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.find_cluster import find_running_cluster
from minikafka.tools.cli.arguments.options import (
    EXISTING_FILE,
    data_option,
    timeout_option,
    topics_argument,
)
from minikafka.tools.cli.arguments.partition_arguments import Named, partitions_argument
from minikafka.tools.cli.arguments.placement import given_plan, plan_file
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.terminal.command_group import CommandGroup
from minikafka.tools.cli.terminal.echo import echo, json_option, show

_TIMEOUT_MS: Final = 60_000

verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="List every step, write and request."
)


@click.group(cls=CommandGroup)
def plan() -> None:
    """Show, in order, the writes and requests that an operation would cause. The operation is not carried out."""


@plan.command("kill-broker")
@click.argument("broker_id", type=int, metavar="ID", shell_complete=completion.brokers)
@data_option
@timeout_option
@verbose_option
@json_option
def kill_broker(broker_id: int, data: str | None, verbose: bool) -> None:
    """Show the effects of the death of broker ID."""
    _answer({"operation": "kill-broker", "broker": broker_id}, data, verbose)


@plan.command(short_help="Show the effects of moving partitions.")
@click.option(
    "--file",
    type=EXISTING_FILE,
    metavar="FILE",
    help="JSON file in the format of Kafka's reassignment tool.",
)
@partitions_argument
@click.option(
    "--replicas",
    multiple=True,
    metavar="1,2,3",
    help="The partition's new brokers, the preferred leader first.",
)
@data_option
@timeout_option
@verbose_option
@json_option
def reassign(
    file: str | None,
    named: Named,
    replicas: tuple[str, ...],
    data: str | None,
    verbose: bool,
) -> None:
    """Show what `minikafka reassign` with the same options would cause."""
    if named.topics or (file is None) == (not named.partitions):
        raise click.UsageError("give either --file, or partitions and --replicas")
    wanted = plan_file(file) if file else given_plan(named.partitions, replicas)
    targets = [[tp.topic, tp.partition, list(to)] for tp, to in wanted.items()]
    _answer({"operation": "reassign", "targets": targets}, data, verbose)


@plan.command("delete-topic")
@topics_argument(required=True)
@data_option
@timeout_option
@verbose_option
@json_option
def delete_topic(topics: tuple[str, ...], data: str | None, verbose: bool) -> None:
    """Show the effects of deleting these topics."""
    _answer({"operation": "delete-topic", "topics": list(topics)}, data, verbose)


@plan.command(short_help="Show the effects of electing leaders.")
@partitions_argument
@click.option("--preferred", is_flag=True, help="Elect preferred leaders (the default).")
@click.option("--unclean", is_flag=True, help="Allow leaders outside the ISR.")
@data_option
@timeout_option
@verbose_option
@json_option
def elect(
    named: Named,
    preferred: bool,
    unclean: bool,
    data: str | None,
    verbose: bool,
) -> None:
    """Show the effects of an election of leaders for these partitions or topics (default: all)."""
    if preferred and unclean:
        raise click.UsageError("--preferred and --unclean cannot be combined")
    question: dict[str, Any] = {"operation": "elect", "unclean": unclean, "partitions": None}
    if named.partitions:
        question["partitions"] = list(named.partitions)
    elif named.topics:
        question["topics"] = list(named.topics)
    _answer(question, data, verbose)


def _answer(question: dict[str, Any], data: str | None, verbose: bool) -> None:
    lines = run(_ask(find_running_cluster(data), question))
    show({"question": question, "lines": lines}, lambda: _print(lines, verbose))


def _print(lines: list[dict[str, Any]], verbose: bool) -> None:
    for line in lines:
        if line["kind"] == "assumed":
            echo(f"assumed: {_words(line)}")
    for sentence in forecasts.forecast(lines):
        echo(sentence)
    for line in lines if verbose else ():
        if line["kind"] not in ("decision", "assumed"):
            echo(f"{line['cause']:<8} {line['kind']:<9} {_words(line)}")


async def _ask(found: clusters.LocalCluster, question: dict[str, Any]) -> list[dict[str, Any]]:
    """Send a question to all brokers; return the lines of the active controller's answer.

    Raises the KafkaError that the controller returned; NOT_CONTROLLER if no controller answers.
    """
    answers = await found.ask(messages.PLAN, question, _TIMEOUT_MS)
    refused: KafkaError | None = None
    planned = {id_: answer for id_, answer in answers.items() if isinstance(answer, Mapping)}
    if len(planned) > 1:  # a former controller answers too
        active = cluster_state.active_controller((await found.state()).answers)
        planned = {id_: answer for id_, answer in planned.items() if id_ == active}
    for answer in (*planned.values(), *answers.values()):
        if isinstance(answer, Mapping):
            return list(answer["lines"])
        if isinstance(answer, KafkaError) and answer.code is not ErrorCode.NOT_CONTROLLER:
            refused = answer
    raise refused or KafkaError(ErrorCode.NOT_CONTROLLER, "no broker answers as the controller")


def _words(line: Mapping[str, Any]) -> str:
    if line["kind"] == "assumed":
        return str(line["text"])
    return tracing.describe({"zxid": None, "queued": 0, **line})
