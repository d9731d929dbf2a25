"""`plan`: what the controller would write to ZooKeeper and send to brokers, before anything is done. Read only.

The active controller answers from a copy of what it knows. Exit code 0 for a plan, 1 when none can be made
(no controller answers, or the question is about what is not there), 2 for what cannot be understood.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import click

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.cli.placement import given_partitions, given_plan, plan_file
from minikafka.cli.target import data_option, json_option, run, running_cluster
from minikafka.cluster import LocalCluster
from minikafka.explain.trace import tell
from minikafka.rpc.messages import PLAN

_TIMEOUT_MS: Final = 60_000

topics_option = click.option("-t", "--topic", "topics", multiple=True, help="A topic.")
partitions_option = click.option(
    "-p", "--partition", "partitions", multiple=True, type=click.IntRange(0), help="Its partition."
)


@click.group()
def plan() -> None:
    """Tell the writes and requests that would follow, in order; nothing is done."""


@plan.command("kill-broker")
@click.argument("broker_id", type=int, metavar="ID")
@data_option
@json_option
def kill_broker(broker_id: int, data: str | None, as_json: bool) -> None:
    """If broker ID died."""
    _show({"operation": "kill-broker", "broker": broker_id}, data, as_json)


@plan.command()
@click.option("--file", metavar="FILE", help="A plan in the JSON of Kafka's reassignment tool.")
@topics_option
@partitions_option
@click.option("--replicas", multiple=True, metavar="1,2,3", help="Where it shall be.")
@data_option
@json_option
def reassign(
    file: str | None,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    replicas: tuple[str, ...],
    data: str | None,
    as_json: bool,
) -> None:
    """If partitions were reassigned, as `minikafka reassign` with the same options does."""
    if (file is None) == (not topics):
        raise click.UsageError("give --file, or --topic, --partition and --replicas")
    wanted = plan_file(file) if file else given_plan(topics, partitions, replicas)
    targets = [[tp.topic, tp.partition, list(to)] for tp, to in wanted.items()]
    _show({"operation": "reassign", "targets": targets}, data, as_json)


@plan.command("delete-topic")
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC…")
@data_option
@json_option
def delete_topic(topics: tuple[str, ...], data: str | None, as_json: bool) -> None:
    """If these topics were deleted."""
    _show({"operation": "delete-topic", "topics": list(topics)}, data, as_json)


@plan.command()
@topics_option
@partitions_option
@click.option("--preferred", is_flag=True, help="Elect first replicas; so it is without --unclean.")
@click.option("--unclean", is_flag=True, help="Allow leaders from outside the ISR.")
@data_option
@json_option
def elect(
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    preferred: bool,
    unclean: bool,
    data: str | None,
    as_json: bool,
) -> None:
    """If leaders were elected, of the given partitions or topics, or of all."""
    if preferred and unclean:
        raise click.UsageError("choose --preferred or --unclean")
    question: dict[str, Any] = {"operation": "elect", "unclean": unclean, "partitions": None}
    if partitions:
        question["partitions"] = given_partitions(topics, partitions)
    elif topics:
        question["topics"] = list(topics)
    _show(question, data, as_json)


def _show(question: dict[str, Any], data: str | None, as_json: bool) -> None:
    lines = run(_ask(running_cluster(data), question))
    if as_json:
        click.echo(json.dumps({"question": question, "lines": lines}))
        return
    for line in lines:
        if line["kind"] != "decision":
            click.echo(f"{line['cause']:<8} {line['kind']:<9} {_words(line)}")


async def _ask(found: LocalCluster, question: dict[str, Any]) -> list[dict[str, Any]]:
    """The active controller's answer. Raises KafkaError: the planner's, NOT_CONTROLLER when none answers."""
    answers = await found.ask(PLAN, question, _TIMEOUT_MS)
    refused: KafkaError | None = None
    for answer in answers.values():
        if isinstance(answer, Mapping):
            return list(answer["lines"])
        if isinstance(answer, KafkaError) and answer.code is not ErrorCode.NOT_CONTROLLER:
            refused = answer
    raise refused or KafkaError(ErrorCode.NOT_CONTROLLER, "no broker answers as the controller")


def _words(line: Mapping[str, Any]) -> str:
    if line["kind"] == "assumed":
        return str(line["text"])
    return tell({"zxid": None, "queued": 0, **line})
