"""`minikafka transactions`: the functions of Kafka's kafka-transactions.sh.

The tables have the columns of Kafka's tool. Exit code 1 if a named transactional id does not exist, if a partition
could not be examined, or if an abort was refused. The reason is printed; the other ids and partitions are still shown.
"""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "abort": Entry("abort", "Write the marker of an abort into a partition."),
    "describe": Entry("describe", "Show the transaction of transactional ids."),
    "describe-producers": Entry("describe_producers", "Show the producers of a partition."),
    "fence": Entry("fence", "Abort the open transactions of transactional ids."),
    "find-hanging": Entry("find_hanging", "Find transactions that no coordinator will end."),
    "list": Entry("list", "List transactional ids with their states."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def transactions() -> None:
    """Show transactions, find those that no coordinator knows, and abort them in a partition."""
