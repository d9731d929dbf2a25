"""`minikafka plan`: show what the controller would write to ZooKeeper and send to brokers; nothing is changed.

Exit code 1 if no controller answers, or if the named broker, topic or partition does not exist; 2 for a usage error.
"""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "delete-topic": Entry("delete_topic", "Show the effects of deleting these topics."),
    "elect": Entry("elect", "Show the effects of electing leaders."),
    "kill-broker": Entry("kill_broker", "Show the effects of the death of broker ID."),
    "reassign": Entry("reassign", "Show the effects of moving partitions."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def plan() -> None:
    """Show, in order, the writes and requests that an operation would cause. The operation is not carried out."""
