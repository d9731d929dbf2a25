"""The groups and partitions that several commands of `groups` name, and the reasons of their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import click

import minikafka.client as clients
from minikafka.base.errors import ErrorCode
from minikafka.tools.cli.arguments import completion
from minikafka.tools.cli.groups.offset_resets import parse_scopes

REASONS: Final = {
    ErrorCode.NON_EMPTY_GROUP: "the group has members; stop its consumers first",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group has members that read the topic; stop them first",
    ErrorCode.UNKNOWN_MEMBER_ID: "the group has members; stop its consumers first",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "there is no such partition",
}


def reason(outcome: clients.Outcome) -> str:
    """Return the reason why a request about a group was refused."""
    return REASONS.get(outcome.code) or outcome.reason


topic_scope_option = click.option(
    "-t",
    "--topic",
    "scopes",
    multiple=True,
    callback=parse_scopes,
    metavar="TOPIC[:N,...]",
    help="A topic, or some of its partitions; may be repeated.",
    shell_complete=completion.topics,
)


async def named(client: clients.Client, groups: Sequence[str]) -> list[str]:
    """Return `groups`; if `groups` is empty, return the names of all groups."""
    if groups:
        return list(groups)
    return [listing.group for listing in await client.groups.list_groups()]
