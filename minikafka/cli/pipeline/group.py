"""The command group `minikafka pipeline`. A command's module is imported when the command runs.

A command is a function in the module that `_COMMANDS` names. The function has the name of the command, with
`_` in place of `-`. Commands that run a pipeline are decorated with `launch.launch_options`, which passes a
`Launch` to the function.
"""

from __future__ import annotations

import importlib
from typing import Final, NamedTuple

import click

from minikafka.cli.terminal.command_group import Group


class _Entry(NamedTuple):
    """One command: the module of this package that defines it, and its line in `--help`."""

    module: str
    summary: str


_COMMANDS: Final = {
    "run": _Entry("run", "Run the pipeline that a TOML file describes."),
    "archive": _Entry("archive", "Write topics to Parquet files, each record once."),
    "window": _Entry("window", "Count records per window of time, in total or by key."),
    "lag": _Entry("lag", "Measure the lag of consumer groups over time."),
    "restore": _Entry("restore", "Write an archived topic into a topic, and check it."),
    "copy": _Entry("copy", "Copy topics to a topic, of this cluster or another."),
    "package": _Entry("package", "Write the archives for jobs on a Spark cluster."),
    "check": _Entry("check", "Check producers' histories against the logs of all replicas."),
    "ledger": _Entry("ledger", "Count elections, ISR changes and controller terms in ledgers."),
}
"""Every command by its name, in the order of `--help`."""


class _Pipelines(Group):
    """The group of the commands in `_COMMANDS`. `--help` shows their summaries without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module = importlib.import_module(f"minikafka.cli.pipeline.{entry.module}")
        command = getattr(module, cmd_name.replace("-", "_"))
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the summaries of the commands in `_COMMANDS`."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in _COMMANDS.items()])


@click.group(cls=_Pipelines)
def pipeline() -> None:
    """Run Spark jobs over topics: on this machine, or on a Spark cluster with --master."""
