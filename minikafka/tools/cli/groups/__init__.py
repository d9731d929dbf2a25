"""`minikafka groups`: the functions of kafka-consumer-groups.

The tables have the columns of Kafka's tool. Exit code 1 if a named group does not exist, or if a request
about the group was refused. The reason is printed, and the other groups are still processed.
"""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "delete": Entry("delete", "Delete groups and their offsets."),
    "delete-offsets": Entry("delete_offsets", "Delete committed offsets of a group."),
    "describe": Entry("describe", "Show partitions and lag, members, or the state of groups."),
    "expire": Entry("expire", "Let all committed offsets of a group expire now."),
    "list": Entry("list", "Print the names of all consumer groups, one per line."),
    "reset-offsets": Entry(
        "reset_offsets", "Change the committed offsets of groups without members."
    ),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def groups() -> None:
    """Show consumer groups and their lag, delete them, and reset or delete their offsets."""
