"""The configuration keys of delegation tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from minikafka.base.config.keys import ConfigType, key
from minikafka.base.config.security import SecurityKeys

_, _, _, _, LONG, _, _, PASSWORD = ConfigType

_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationTokenKeys(SecurityKeys):
    """The keys of delegation tokens, a part of `BrokerConfig`."""

    delegation_token_secret_key: str | None = key(
        PASSWORD,
        None,
        "Secret with which the brokers of a cluster make delegation tokens; clients cannot use tokens if not set.",
    )
    delegation_token_master_key: str | None = key(
        PASSWORD, None, "Former name of delegation.token.secret.key, which has precedence."
    )
    delegation_token_max_lifetime_ms: int = key(
        LONG,
        7 * 24 * _HOUR_MS,
        "Longest life of a delegation token from its creation; a renewal cannot exceed it.",
        low=1,
    )
    delegation_token_expiry_time_ms: int = key(
        LONG,
        24 * _HOUR_MS,
        "Time after which a delegation token expires, unless it is renewed before.",
        low=1,
    )
    delegation_token_expiry_check_interval_ms: int = key(
        LONG, _HOUR_MS, "Interval at which expired delegation tokens are removed.", low=1
    )
