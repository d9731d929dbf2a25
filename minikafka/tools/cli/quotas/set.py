"""`quotas set`."""

from __future__ import annotations

import click

from minikafka.base.errors import KafkaError
from minikafka.security.quotas import CLIENT_KEYS, CONNECTION, QuotaEntity, parse_quota
from minikafka.tools.cli.arguments.options import client_options, key_value_pairs
from minikafka.tools.cli.execution.running import run_with_client
from minikafka.tools.cli.quotas.owner import owner_options, title
from minikafka.tools.cli.terminal.echo import show


def _quotas(
    context: click.Context, option: click.Parameter, words: tuple[str, ...]
) -> dict[str, float]:
    found = {}
    for key, text in key_value_pairs(context, option, words).items():
        try:
            found[key] = parse_quota(key, text)
        except ValueError:
            reason = f"{key} must be a number of at least 0, got {text!r}"
            raise click.BadParameter(reason, context, option) from None
    return found


@click.command("set")
@click.argument("quotas", nargs=-1, metavar="[KEY=VALUE]...", callback=_quotas)
@click.option(
    "--delete", "deleted", multiple=True, metavar="KEY", help="Remove this quota; may be repeated."
)
@owner_options
@client_options
def set_(quotas: dict[str, float], deleted: tuple[str, ...], owner: QuotaEntity) -> None:
    """Set quotas of a user, a client id, both or an address; if one is refused, none is changed.

    Keys: producer_byte_rate and consumer_byte_rate (bytes per second), request_percentage,
    controller_mutation_rate (partitions per second), and for addresses connection_creation_rate.
    """
    if owner == QuotaEntity():
        raise click.UsageError("name an owner: --user, --client, --ip, or one with -defaults")
    if not (quotas or deleted) or not quotas.keys().isdisjoint(deleted):
        raise click.UsageError("name quotas as KEY=VALUE or by --delete, each once")
    known = (CONNECTION,) if owner.ip is not None else CLIENT_KEYS
    for key in (*quotas, *deleted):
        if key not in known:
            raise click.UsageError(f"{key} is not a quota of this owner: {', '.join(known)}")
    changes: dict[str, float | None] = {**quotas, **dict.fromkeys(deleted)}
    outcome = run_with_client(lambda client: client.quotas.alter(owner, changes))
    if not outcome.ok:
        raise KafkaError(outcome.code, f"{title(owner)}: {outcome.reason}")
    show({"owner": title(owner), "changed": changes}, [f"Changed quotas of {title(owner)}."])
