"""`faults hold`, `held`, `release` and `after`: the moments at which scripts of a shell harm a cluster."""

from __future__ import annotations

import click

import minikafka.tools.cluster.faults.network as network
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.arguments.find_cluster import find_running_cluster
from minikafka.tools.cli.execution.running import run
from minikafka.tools.cli.faults.arguments import done, fault_command
from minikafka.tools.cli.terminal.echo import show

_step = click.argument("step", metavar="STEP")


@click.command()
@_step
@fault_command
def hold(step: str, data: str | None) -> None:
    """Let each broker that reaches STEP, named `operation.step`, block there until `faults release`."""
    run(find_running_cluster(data).hold(step))
    done(f"brokers block at {step}; minikafka faults release {step} lets them continue", {})


@click.command()
@_step
@fault_command
def held(step: str, data: str | None) -> None:
    """Wait until a broker blocks at STEP, and print its id. Fails after a minute."""
    broker = run(find_running_cluster(data).held(step))
    show({"broker": broker}, [broker])


@click.command()
@_step
@fault_command
def release(step: str, data: str | None) -> None:
    """Let the brokers that block at STEP continue."""
    run(find_running_cluster(data).release(step))
    done(f"brokers no longer block at {step}", {})


@click.command()
@click.argument("api", metavar="API")
@click.argument("n", type=int, metavar="N")
@click.option(
    "--broker",
    type=int,
    metavar="ID",
    shell_complete=completion.brokers,
    help="Only requests to this broker.",
)
@click.option(
    "--hold-ms",
    type=click.IntRange(0, 600_000),
    default=network.HOLD_MS,
    metavar="MS",
    help="How long the request after them waits, for the next command (default: 1000).",
)
@fault_command
def after(api: str, n: int, broker: int | None, hold_ms: int, data: str | None) -> None:
    """Wait until N further requests of API, such as Produce, have reached a broker. Fails after a minute."""
    fault = run(find_running_cluster(data).after(api, n, broker=broker, hold_ms=hold_ms))
    done(f"{n} requests of {api} were sent", {"hits": dict(fault.hits)})
