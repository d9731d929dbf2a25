"""The argument ID of commands for one process of the cluster: the id of a broker, or `zookeeper`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from minikafka.tools.cli.arguments.completion import ZOOKEEPER, processes

ProcessName = int | str
"""The id of a broker, or ZOOKEEPER."""


class ProcessType(click.ParamType[ProcessName]):
    """The click type of a ProcessName."""

    name = "process"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> ProcessName:
        """Return the id of a broker as a number, or ZOOKEEPER in lower case. Raises BadParameter."""
        text = str(value)
        if text.lower() == ZOOKEEPER:
            return ZOOKEEPER
        if not text.isdecimal():
            self.fail(f"{text!r} is neither the id of a broker nor {ZOOKEEPER}", param, ctx)
        return int(text)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the processes of the cluster whose names begin with `incomplete`."""
        return processes(ctx, incomplete)


def process_argument(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with the argument ID, which is passed as `process`."""
    return click.argument("process", type=ProcessType(), metavar="ID|zookeeper")(command)


def shown(process: ProcessName) -> str:
    """Return the name of a process in messages."""
    return "ZooKeeper" if process == ZOOKEEPER else f"broker {process}"
