"""ACLs as rows, and the outcomes of their creation or removal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter
from typing import Final

import minikafka.client as clients
from minikafka.security.acls import AclBinding
from minikafka.tools.cli.execution.running import fail_unless
from minikafka.tools.cli.terminal.columns import Column, failure, lines, objects
from minikafka.tools.cli.terminal.echo import echo, show

ACLS: Final = (
    Column("PRINCIPAL", "principal", lambda acl: acl.entry.principal),
    Column("PERMISSION", "permission", lambda acl: acl.entry.permission.word),
    Column("OPERATION", "operation", lambda acl: acl.entry.operation.word),
    Column("RESOURCE", "resource", lambda acl: acl.pattern.type.word),
    Column("NAME", "name", lambda acl: acl.pattern.name),
    Column("PATTERN", "pattern", lambda acl: acl.pattern.pattern.word),
    Column("HOST", "host", lambda acl: acl.entry.host),
)


def show_acls(found: Sequence[AclBinding]) -> None:
    """Print ACLs."""
    show(objects(ACLS, found), lines(ACLS, found) if found else ["There are no such ACLs."])


def report(outcomes: Mapping[AclBinding, clients.Outcome], done: str) -> None:
    """Print a line for each ACL. Exit with code 1 if one has failed. `done`: the word for success."""
    columns = (*(_of_binding(one) for one in ACLS), *failure(itemgetter(1)))
    succeeded = [binding for binding, outcome in outcomes.items() if outcome.ok]
    show(objects(columns, outcomes.items()), [f"{done} {binding}." for binding in succeeded])
    for binding, outcome in outcomes.items():
        if not outcome.ok:
            echo(f"minikafka: {outcome.code.name}: {binding}: {outcome.reason}", err=True)
    fail_unless(len(succeeded) == len(outcomes))


def _of_binding(column: Column) -> Column:
    return column._replace(value=lambda row: column.value(row[0]))
