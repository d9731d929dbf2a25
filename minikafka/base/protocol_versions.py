"""The versions of the protocol between brokers.

A version has the number of the minor release that introduced it. A broker accepts the version of its release and the
one before. Its registration names both, or only the lower one if `minikafka.inter.broker.protocol.version` says so. Two
brokers use the highest version that both have.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, TypeAlias

Versions: TypeAlias = tuple[str, ...]
"""Versions of the protocol, in ascending order."""

VERSION_KEY: Final = "minikafka.inter.broker.protocol.version"
UNVERSIONED: Final = "0.1"
"""The version of registrations and requests that name none, as those of release 0.1.0."""
VERSION: Final = "0.2"
VERSIONS: Final = (UNVERSIONED, VERSION)
"""The versions that this release accepts."""
_FORM: Final = re.compile(r"[0-9]{1,4}[.][0-9]{1,4}")
_COUNT_MAX: Final = 100


def versions_up_to(highest: str) -> Versions:
    """Return the versions of a broker whose configured version is `highest`."""
    return VERSIONS[: VERSIONS.index(highest) + 1]


def parse_versions(names: object) -> Versions:
    """Return the versions that a broker has named. Raises ValueError for anything but a list of versions."""
    if not isinstance(names, list | tuple) or not 0 < len(names) <= _COUNT_MAX:
        raise ValueError("the protocol versions are not a list")
    return tuple(sorted((parse_version(name) for name in names), key=_order))


def parse_version(name: object) -> str:
    """Return the version. Raises ValueError if it does not have the form MAJOR.MINOR."""
    if not isinstance(name, str) or not _FORM.fullmatch(name):
        raise ValueError("a protocol version is not of the form MAJOR.MINOR")
    return name


def common_version(own: Versions, others: Versions) -> str | None:
    """Return the highest version that both have, None if there is none."""
    return max(set(own) & set(others), key=_order, default=None)


def is_on_everywhere(version: str, registered: Iterable[Versions]) -> bool:
    """True if all registered brokers have this version, so that a feature which it brought may be used."""
    return all(version in versions for versions in registered)


def mismatch(own_name: str, own: Versions, other_name: str, others: Versions) -> str:
    """Return why two brokers without a common version cannot be in one cluster, and the remedy."""
    older = own_name if _order(own[-1]) < _order(others[-1]) else other_name
    return (
        f"{own_name} has {_words(own)} of the protocol between brokers, and {other_name} {_words(others)}: upgrade "
        f"{older} first, one minor release at a time and without {VERSION_KEY} in its file"
    )


def _order(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def _words(versions: Sequence[str]) -> str:
    return f"version {versions[0]}" if len(versions) == 1 else f"versions {' and '.join(versions)}"
