"""`faults run`."""

from __future__ import annotations

import sys
from typing import TextIO

import click

import minikafka.tools.cluster.faults.script.run as script_runs
from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.arguments.find_cluster import find_running_cluster
from minikafka.tools.cli.arguments.options import timeout_option
from minikafka.tools.cli.execution.running import run as run_work
from minikafka.tools.cli.faults.arguments import on_machine
from minikafka.tools.cli.terminal.echo import json_option, show


@click.command()
@click.argument("file", type=click.Path(allow_dash=True), metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Only check the script and show its steps.")
@on_machine
@timeout_option
@json_option
def run(file: str, dry_run: bool, data: str | None) -> None:
    """Run the fault script FILE (`-`: standard input; docs/faults.md), and print what each of its entries has hit.

    Exit code: 0 if every entry has hit something; 3 if one has hit nothing; 1 if the script is invalid, and nothing was
    harmed, or if an entry has failed. Ctrl-C ends the faults that last.
    """
    found = find_running_cluster(data)
    script = found.run_faults(_standard_input() if file == "-" else file, is_endless=False)
    if dry_run:
        entries = [result.entry for result in script.results]
        show([entry.as_json() for entry in entries], map(str, entries))
        return

    async def work() -> None:
        async with script:
            await script.wait()

    try:
        run_work(work())
    finally:
        _show(script)


def _standard_input() -> TextIO:
    if sys.stdin is None:
        raise MinikafkaError("standard input is closed: minikafka faults run - < FILE")
    return sys.stdin


def _show(script: script_runs.FaultRun) -> None:
    show([result.as_json() for result in script.results], map(str, script.results))
