"""`minikafka configs`: settings of a topic, a broker or all brokers, with their sources.

Exit code 1, without any change, when the topic or broker does not exist, or a key or value is refused.
"""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "delete": Entry("delete", "Remove settings."),
    "describe": Entry("describe", "Show settings with their sources."),
    "set": Entry("set", "Set each KEY to VALUE; if one is refused, none is changed."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def configs() -> None:
    """Show and change settings of topics and brokers without a restart."""
