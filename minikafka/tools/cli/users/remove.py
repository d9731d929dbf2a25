"""`users remove`."""

from __future__ import annotations

import click

import minikafka.client as clients
import minikafka.client.administration.scram_admin as scram_admin
from minikafka.security.scram import BY_NAME
from minikafka.tools.cli.arguments.options import client_options
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.users.options import mechanism_option, report


@click.command()
@click.argument("users", nargs=-1, required=True, metavar="USER...")
@mechanism_option("Remove only the credential of this mechanism (default: all); may be repeated.")
@client_options
def remove(users: tuple[str, ...], mechanisms: tuple[str, ...]) -> None:
    """Remove the credentials of each USER, who then cannot log in again. Open connections stay."""

    async def work(client: clients.Client) -> dict[str, clients.Outcome]:
        found = await client.users.describe(users)
        missing = {name: user.outcome for name, user in found.items() if not user.outcome.ok}
        deleted = [
            scram_admin.OldPassword(name, BY_NAME[mechanism])
            for name, user in found.items()
            if name not in missing
            for mechanism in mechanisms or [info.mechanism for info in user.credentials]
        ]
        return {**missing, **await client.users.alter(deleted=deleted)}

    report(run_with_client(work), "Removed credentials of {}.")
