"""The answer of the controller to a question of `plan`.

The active controller runs its state machine on a copy of its state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

import minikafka.tools.cluster.observation.state as cluster_state
import minikafka.tools.explain.forecast as forecasts
import minikafka.tools.explain.gather as gathering
import minikafka.tools.explain.trace as tracing
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.tools.cli.arguments.find_cluster import find_running_cluster
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.execution.sources import open_sources
from minikafka.tools.cli.terminal.echo import echo, show

verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="List every step, write and request."
)


def answer(
    question: dict[str, Any], bootstrap: str | None, data: str | None, verbose: bool
) -> None:
    """Ask the controller, and print its answer."""
    if not bootstrap:
        find_running_cluster(data)

    async def ask() -> gathering.Plan:
        async with open_sources(bootstrap, data) as sources:
            return await _ask(sources, question)

    lines = run(ask())
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


async def _ask(sources: gathering.Sources, question: dict[str, Any]) -> gathering.Plan:
    """Send a question to all brokers; return the lines of the active controller's answer.

    Raises the KafkaError that the controller returned; NOT_CONTROLLER if no controller answers.
    """
    answers = await sources.plans(question)
    planned = {id_: plan for id_, plan in answers.items() if not isinstance(plan, Exception)}
    if len(planned) > 1:  # a former controller answers too
        active = cluster_state.active_controller((await sources.state()).answers)
        planned = {id_: plan for id_, plan in planned.items() if id_ == active}
    for plan in (*planned.values(), *answers.values()):
        if not isinstance(plan, Exception):
            return plan
    refused = [error for error in answers.values() if isinstance(error, KafkaError)]
    chosen = [error for error in refused if error.code is not ErrorCode.NOT_CONTROLLER]
    raise next(reversed(chosen), None) or KafkaError(
        ErrorCode.NOT_CONTROLLER, "no broker answers as the controller"
    )


def _words(line: Mapping[str, Any]) -> str:
    if line["kind"] == "assumed":
        return str(line["text"])
    return tracing.describe({"zxid": None, "queued": 0, **line})
