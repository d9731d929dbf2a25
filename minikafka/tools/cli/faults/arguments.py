"""The arguments that several commands of `minikafka faults` share."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import click
from click.shell_completion import CompletionItem

import minikafka.tools.cluster.faults.fault as fault_types
import minikafka.tools.cluster.proxy.rules as rules
from minikafka.tools.cli.arguments.completion import brokers, processes
from minikafka.tools.cli.arguments.options import needs_machine, timeout_option
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.terminal.echo import echo, json_option, show


class PeerType(click.ParamType[int | str]):
    """The click type of one end of a connection: the id of a broker, `clients` or `zookeeper`."""

    name = "peer"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> int | str:
        """Return the id of a broker as a number, or a name in lower case. Raises BadParameter."""
        text = str(value).lower()
        names = (rules.CLIENTS, rules.ZOOKEEPER)
        if text in names:
            return text
        if not text.isdecimal():
            known = " nor ".join(names)
            self.fail(f"{value!r} is neither the id of a broker nor {known}", param, ctx)
        return int(text)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the processes of the cluster, and `clients`, as far as they begin with `incomplete`."""
        clients = [CompletionItem(rules.CLIENTS)] if rules.CLIENTS.startswith(incomplete) else []
        return [*processes(ctx, incomplete), *clients]


broker_argument = click.argument("broker", type=int, metavar="ID", shell_complete=brokers)
on_machine = needs_machine("harms processes")


def fault_command(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command that causes a fault: with --data, --timeout and --json."""
    return on_machine(timeout_option(json_option(command)))


def cause(work: Coroutine[Any, Any, fault_types.Fault]) -> None:
    """Cause a fault, and print its name and what it has hit already."""
    fault = run(work)
    show({"fault": fault.name, "hits": dict(fault.hits)})
    echo(f"{fault.name} is in effect; minikafka faults heal ends it", err=True)


def done(text: str, result: dict[str, Any]) -> None:
    """Print what was done once, and does not last."""
    show(result)
    echo(text, err=True)
