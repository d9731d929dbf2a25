"""`minikafka topics`, over the Kafka protocol.

Exit code 1 if a named topic does not exist, or if the request about the topic was refused. The reason is
printed, and the other named topics are still processed.
"""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "alter": Entry("alter", "Change settings of TOPIC, or add partitions to it."),
    "compact": Entry("removal", "Compact the logs of topics now."),
    "create": Entry("create", "Create TOPIC."),
    "delete": Entry("delete", "Mark topics for deletion."),
    "delete-records": Entry("delete_records", "Delete records from the start of partitions."),
    "describe": Entry("describe", "Show partitions, leaders, replicas and ISRs."),
    "expire": Entry("removal", "Apply retention to topics now."),
    "list": Entry("list", "Print the names of all topics, one per line."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def topics() -> None:
    """Create, list, describe, alter and delete topics."""
