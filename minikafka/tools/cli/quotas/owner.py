"""The options that name the owner of quotas, with the names of kafka-configs.sh."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps

import click

from minikafka.security.quotas import DEFAULT, Name, QuotaEntity


def owner_options(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command with the options of an owner, passed as `owner`; without options it has no parts."""

    @click.option("--user", metavar="NAME", help="A user, without `User:`.")
    @click.option("--user-defaults", is_flag=True, help="Each user without a quota of its own.")
    @click.option("--client", metavar="CLIENT", help="A client id; with --user, only of this user.")
    @click.option(
        "--client-defaults", is_flag=True, help="Each client id without a quota of its own."
    )
    @click.option("--ip", metavar="ADDRESS", help="An address.")
    @click.option("--ip-defaults", is_flag=True, help="Each address without a quota of its own.")
    @wraps(command)
    def with_owner(
        user: str | None,
        user_defaults: bool,
        client: str | None,
        client_defaults: bool,
        ip: str | None,
        ip_defaults: bool,
        **rest: object,
    ) -> None:
        owner = QuotaEntity(
            _name("user", user, user_defaults),
            _name("client", client, client_defaults),
            _name("ip", ip, ip_defaults),
        )
        if owner.ip is not None and owner != QuotaEntity(ip=owner.ip):
            raise click.UsageError("--ip cannot be combined with --user or --client")
        command(owner=owner, **rest)

    return with_owner


def _name(option: str, name: str | None, is_default: bool) -> Name:
    if name is not None and is_default:
        raise click.UsageError(f"give --{option} or --{option}-defaults, not both")
    return DEFAULT if is_default else name


def title(owner: QuotaEntity) -> str:
    """Return an owner in words: `user alice, any client id`."""
    words = zip(("user", "client id", "ip"), owner, strict=True)
    return ", ".join(
        f"any {kind}" if name is DEFAULT else f"{kind} {name}"
        for kind, name in words
        if name is not None
    )
