"""The configuration keys of the authorizer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from minikafka.base.config.coordinators import CoordinatorKeys
from minikafka.base.config.keys import ConfigType, key
from minikafka.base.errors import ConfigError

_, BOOLEAN, STRING, _, _, _, _, _ = ConfigType

AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizerKeys(CoordinatorKeys):
    """The keys of the authorizer of one broker, a part of `BrokerConfig`."""

    authorizer_class_name: str = key(
        STRING,
        "",
        f"The authorizer: empty, which allows everything to everyone, or {AUTHORIZER}, which decides by the "
        "ACLs in ZooKeeper.",
    )
    super_users: str = key(
        STRING,
        "",
        "Principals that may do everything, whatever the ACLs say, as TYPE:NAME separated by semicolons, such as "
        "User:admin;User:broker.",
    )
    allow_everyone_if_no_acl_found: bool = key(
        BOOLEAN, False, "Whether everyone may do everything with a resource that no ACL matches."
    )


def check_authorizer(config: AuthorizerKeys) -> None:
    """Raise ConfigError for another authorizer, and for principals that have no type or no name."""
    name = config.authorizer_class_name
    if name not in ("", AUTHORIZER):
        raise ConfigError(
            f"authorizer.class.name must be empty or {AUTHORIZER}, got {name!r}; "
            "it reads and writes Kafka's ACLs in ZooKeeper"
        )
    parse_principals(config.super_users)


def parse_principals(text: str) -> tuple[str, ...]:
    """Return the principals in the value of `super.users`. Raises ConfigError."""
    found = tuple(one.strip() for one in text.rstrip("; ").split(";"))
    if found == ("",):
        return ()
    for principal in found:
        kind, _, name = principal.partition(":")
        # With commas, the whole list would be one name, and nobody a super user.
        if not (kind and name) or f",{kind}:" in name:
            raise ConfigError(
                "super.users must be a list of TYPE:NAME separated by semicolons, such as User:admin, "
                f"got {principal!r}"
            )
    return found
