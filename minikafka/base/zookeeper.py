"""The kinds of ZooKeeper that a cluster can use, the setting that chooses one, and a broker's file of its session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from minikafka.base.endpoints import check_connect
from minikafka.base.errors import ConfigError

EMBEDDED: Final = "embedded"
"""This project's own server, which the cluster runs."""
MANAGED: Final = "managed"
"""A server of Apache ZooKeeper, which the cluster runs."""
EXTERNAL: Final = "external"
"""An ensemble that the cluster does not run."""
OWN: Final = (EMBEDDED, MANAGED)
KINDS: Final = (*OWN, EXTERNAL)
FORMS: Final = "embedded, managed or HOST:PORT[/chroot]"
"""The allowed values of the setting, for error messages."""

SESSION_FILE: Final = "zookeeper-session"
"""Name of the file in a broker's first log directory with the id and password of its session."""
_SESSION_IDS: Final = range(-(2**63), 2**63)
"""The session ids that ZooKeeper's protocol can carry; 0 stands for no session."""
_PASSWORD_BYTES: Final = 16

_TEXTS: Final = {
    EMBEDDED: "embedded ZooKeeper, one node, not replicated",
    MANAGED: "Apache ZooKeeper, one node, not replicated",
    EXTERNAL: "external ZooKeeper, not run by this cluster",
}


def parse_zookeeper(value: object) -> tuple[str, str]:
    """Return the kind that the setting chooses, and the address of an external ZooKeeper ("" for the other kinds).

    A single server needs a port, because a word without one is more likely a misspelt kind. Raises ConfigError.
    """
    if value in OWN:
        return str(value), ""
    if not isinstance(value, str) or ":" not in value:
        raise ConfigError(f"zookeeper.connect cannot be {value!r}: write {FORMS}")
    try:
        check_connect(value)
    except ConfigError as error:
        raise ConfigError(f"{error} (allowed: {FORMS})") from error
    return EXTERNAL, value


def shown_kind(kind: str) -> str:
    """Return a text for users: what kind of ZooKeeper the cluster uses, and whether that is replicated."""
    return _TEXTS[kind]


def decode_session(former: Mapping[str, Any]) -> tuple[int, bytes]:
    """Return the id and password in the file's content. Raises ValueError, KeyError, TypeError if malformed."""
    session_id, password = former["id"], bytes.fromhex(former["password"])
    if type(session_id) is not int or session_id == 0 or session_id not in _SESSION_IDS:
        raise ValueError("the session id is invalid")
    if len(password) > _PASSWORD_BYTES:
        raise ValueError("the session password is invalid")
    return session_id, password
