"""The answer of the controller to a question of `plan`.

The active controller runs its state machine on a copy of its state.
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
from minikafka.tools.cli.arguments.find_cluster import find_running_cluster
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.terminal.echo import echo, show

_TIMEOUT_MS: Final = 60_000


verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="List every step, write and request."
)


def answer(question: dict[str, Any], data: str | None, verbose: bool) -> None:
    """Ask the controller, and print its answer."""
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
