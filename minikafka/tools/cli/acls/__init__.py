"""`minikafka acls`: who may do what with which topics, groups and other resources.

The options have the names of kafka-acls.sh.
"""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "add": Entry("add", "Allow or deny operations to principals."),
    "list": Entry("list", "Show ACLs."),
    "remove": Entry("remove", "Remove ACLs."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def acls() -> None:
    """Show, add and remove ACLs, the rules about who may do what with which resources."""
