"""The command group `minikafka pipeline`. A command's module is imported when the command runs.

A command is a function in the module that `_COMMANDS` names. The function has the name of the command, with
`_` in place of `-`. Commands that run a pipeline are decorated with `launch.launch_options`, which passes a
`Launch` to the function.
"""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "run": Entry("run", "Run the pipeline that a TOML file describes."),
    "archive": Entry("archive", "Write topics to Parquet files or a table, each record once."),
    "compact": Entry("compact", "Merge small files of a Delta Lake or Iceberg table."),
    "window": Entry("window", "Count records per window of time, in total or by key."),
    "lag": Entry("lag", "Measure the lag of consumer groups over time."),
    "restore": Entry("restore", "Write an archived topic into a topic, and check it."),
    "copy": Entry("copy", "Copy topics to a topic, of this cluster or another."),
    "package": Entry("package", "Write the archives for jobs on a Spark cluster."),
    "to-connector": Entry(
        "to_connector", "Rewrite a checkpoint so that Spark's Kafka connector continues it."
    ),
    "check": Entry("check", "Check producers' histories against the logs of all replicas."),
    "ledger": Entry("ledger", "Count elections, ISR changes and controller terms in ledgers."),
}
"""Every command by its name, in the order of `--help`."""


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def pipeline() -> None:
    """Run Spark jobs over topics: on this machine, or on a Spark cluster with --master."""
