"""`faults cut`, `cut-clients`, `delay`, `drop` and `reset`, which differ only in the verb."""

from __future__ import annotations

from collections.abc import Callable

import click

import minikafka.tools.cluster.proxy.rules as rules
from minikafka.tools.cli.arguments.find_cluster import find_cluster
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.faults.arguments import (
    PeerType,
    broker_argument,
    cause,
    done,
    fault_command,
)

_direction = click.option(
    "--direction",
    type=click.Choice(rules.DIRECTIONS),
    default=rules.BOTH,
    help="one: only what the first sends to the second.",
)


def _between(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with the two ends A and B, --direction and --link."""
    link = click.option(
        "--link",
        type=click.Choice(rules.LINKS),
        default=rules.ALL,
        help="Only connections of this kind: calls between brokers, Kafka requests, or to ZooKeeper.",
    )
    first = click.argument("a", type=PeerType(), metavar="A")
    second = click.argument("b", type=PeerType(), metavar="B")
    return first(second(_direction(link(command))))


@click.command()
@_between
@fault_command
def cut(a: int | str, b: int | str, direction: str, link: str, data: str | None) -> None:
    """Let nothing pass between A and B (ids of brokers, `clients`, `zookeeper`). It arrives after the fault."""
    cause(find_cluster(data).cut(a, b, direction=direction, link=link))


@click.command()
@broker_argument
@_direction
@fault_command
def cut_clients(broker: int, direction: str, data: str | None) -> None:
    """Cut the broker ID off from all clients, but not from other brokers."""
    cause(find_cluster(data).cut_clients(broker, direction=direction))


@click.command()
@_between
@click.option("--ms", type=int, required=True, metavar="MS", help="Milliseconds in each direction.")
@fault_command
def delay(a: int | str, b: int | str, direction: str, link: str, ms: int, data: str | None) -> None:
    """Let each byte between A and B arrive later, in order."""
    cause(find_cluster(data).delay(a, b, ms, direction=direction, link=link))


@click.command()
@_between
@fault_command
def drop(a: int | str, b: int | str, direction: str, link: str, data: str | None) -> None:
    """Lose all bytes between A and B. The connections that have lost some break when the fault is healed."""
    cause(find_cluster(data).drop(a, b, direction=direction, link=link))


@click.command()
@_between
@fault_command
def reset(a: int | str, b: int | str, direction: str, link: str, data: str | None) -> None:
    """Break the open connections between A and B. New ones work."""
    fault = run(find_cluster(data).reset(a, b, direction=direction, link=link))
    hits = ", ".join(f"{count} {kind}" for kind, count in fault.hits.items()) or "nothing"
    done(f"{fault.name} has hit {hits}", {"fault": fault.name, "hits": dict(fault.hits)})
