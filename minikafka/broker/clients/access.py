"""What the clients of a broker may do: the questions of the handlers to the authorizer, and the log of its verdicts.

Without an authorizer (`authorizer.class.name` is empty) everyone may do everything, and nothing is logged. The logger
`kafka.authorizer.logger` gets one line for each denied request, and at the level DEBUG one for each allowed request.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Final, Protocol, TypeAlias

from minikafka.base.config import BrokerConfig
from minikafka.base.config.authorizer import parse_principals
from minikafka.base.errors import KafkaError
from minikafka.base.metrics import Counter, Metrics
from minikafka.security.acls import CLUSTER_NAME, SUPPORTED, AclResourceType, acl_host
from minikafka.security.authorizer import Authorizer
from minikafka.security.operations import METRICS, NEEDS, Need

audit = logging.getLogger("kafka.authorizer.logger")

_KNOWN_MAX: Final = 4096
"""Verdicts that one connection keeps. A client can name any number of topics."""
_DENIED: Final = "kafka.security:type=AclAuthorizer,name=DeniedPerSec"
_DENIED_HELP: Final = "Rights that requests lacked."


Basis: TypeAlias = tuple[int, str, bool]
"""Version of the ACLs, principal, and whether allowed requests are logged."""


class AuthorizedClient(Protocol):
    """The client at the other end of a connection, as the authorizer knows it."""

    @property
    def principal(self) -> str:
        """The principal, such as `User:alice`."""

    @property
    def host(self) -> str:
        """The client's address without the port."""


def authorizer_of(config: BrokerConfig) -> Authorizer | None:
    """Return the authorizer of a broker; None without one."""
    if not config.authorizer_class_name:
        return None
    super_users = parse_principals(config.super_users)
    return Authorizer(super_users, allow_if_no_acl=config.allow_everyone_if_no_acl_found)


class Access:
    """The verdicts of the authorizer on the requests of clients; without an authorizer, everything is allowed."""

    def __init__(self, authorizer: Authorizer | None, metrics: Metrics) -> None:
        self.authorizer = authorizer
        self._denied: dict[str, Counter] = {}
        if authorizer is not None:
            apis = dict.fromkeys(need.api for need in (*NEEDS, METRICS))
            self._denied = {
                api: metrics.counter(_DENIED, _DENIED_HELP, request=api) for api in apis
            }

    def allows(self, client: AuthorizedClient, need: Need, name: str = CLUSTER_NAME) -> bool:
        """Return True if the client has the right for the resource of this name; log the verdict."""
        authorizer = self.authorizer
        if authorizer is None:
            return True
        verdict = authorizer.rule(
            client.principal, acl_host(client.host), need.operation, need.resource, name
        )
        if not verdict.is_allowed or audit.isEnabledFor(logging.DEBUG):
            self._log(client, need, f"LITERAL:{name}", verdict.is_allowed, str(verdict))
        return verdict.is_allowed

    def allows_any(self, client: AuthorizedClient, need: Need) -> bool:
        """Return True if the client has the right for any resource of the type; log the verdict."""
        if self.authorizer is None:
            return True
        is_allowed = self.authorizer.allows_any(
            client.principal, acl_host(client.host), need.operation, need.resource
        )
        self._log(client, need, "ANY", is_allowed, "all ACLs of the type of resource")
        return is_allowed

    def allowed(self, client: AuthorizedClient, need: Need) -> Container[str]:
        """Return the names of the resources for which the client has the right, decided when a name is looked up.

        Each name is decided and logged once, so that a request has one verdict on a topic that it names often.
        """
        return EVERYTHING if self.authorizer is None else _Allowed(self, client, need)

    def check(self, client: AuthorizedClient, need: Need) -> None:
        """Raise KafkaError CLUSTER_AUTHORIZATION_FAILED if the client lacks a right on the cluster."""
        if not self.allows(client, need):
            raise KafkaError(need.error, f"Request {need.api} is not authorized.")

    def operations(self, client: AuthorizedClient, resource: AclResourceType, name: str) -> int:
        """Return the operations that the client may do with a resource, as bits. These verdicts are not logged."""
        authorizer, host = self.authorizer, acl_host(client.host)
        return sum(
            1 << operation
            for operation in SUPPORTED[resource]
            if authorizer is None
            or authorizer.allows(client.principal, host, operation, resource, name)
        )

    def verdicts(self, client: AuthorizedClient, need: Need) -> Verdicts | None:
        """Return the verdicts on the resources that one connection uses all the time; None without an authorizer."""
        return None if self.authorizer is None else Verdicts(self, self.authorizer, client, need)

    def _log(
        self, client: AuthorizedClient, need: Need, resource: str, is_allowed: bool, rule: str
    ) -> None:
        if not is_allowed:
            self._denied[need.api].value += need.is_logged
            if not need.is_logged:
                return
        audit.log(
            logging.DEBUG if is_allowed else logging.INFO,
            "Principal = %s is %s Operation = %s from host = %s on resource = %s:%s for request = %s with rule = %s",
            client.principal,
            "Allowed" if is_allowed else "Denied",
            need.operation.word,
            acl_host(client.host),
            need.resource.word,
            resource,
            need.api,
            rule,
        )


class Verdicts:
    """The resources for which one client has a right, kept until the ACLs or the client's principal change.

    Only permissions are kept: each denied request is decided again, and logged. While allowed requests are logged, no
    verdict is kept.
    """

    __slots__ = ("_access", "_authorizer", "_client", "_decided", "_known", "_need")

    def __init__(
        self, access: Access, authorizer: Authorizer, client: AuthorizedClient, need: Need
    ) -> None:
        self._access = access
        self._authorizer = authorizer
        self._client = client
        self._need = need
        self._known: set[bytes] = set()
        self._decided = self.basis

    @property
    def basis(self) -> Basis:
        """What the verdicts depend on. A verdict of another basis is no longer valid."""
        return self._authorizer.version, self._client.principal, audit.isEnabledFor(logging.DEBUG)

    def knows(self, name: bytes) -> bool:
        """Return True if the client has the right according to a verdict that is kept."""
        return name in self._known and self._decided == self.basis

    def allow(self, name: bytes) -> bool:
        """Return True if the client has the right for the resource of this name."""
        if self.knows(name):
            return True
        basis = self.basis
        is_allowed = self._access.allows(self._client, self._need, name.decode("utf-8", "replace"))
        if self._decided != basis or len(self._known) >= _KNOWN_MAX:
            self._known.clear()
            self._decided = basis
        are_logged = basis[-1]
        if is_allowed and not are_logged:
            self._known.add(name)
        return is_allowed


class _Allowed:
    """The names for which a client has a right, for one request."""

    def __init__(self, access: Access, client: AuthorizedClient, need: Need) -> None:
        self._ask = access.allows
        self._client = client
        self._need = need
        self._verdicts: dict[object, bool] = {}

    def __contains__(self, name: object) -> bool:
        """Return the verdict on a name, which is decided at the first look-up."""
        verdict = self._verdicts.get(name)
        if verdict is None:
            verdict = self._ask(self._client, self._need, str(name))
            self._verdicts[name] = verdict
        return verdict


class _Everything:
    """The type of `EVERYTHING`."""

    def __contains__(self, name: object) -> bool:
        """Return True for every name."""
        return True


EVERYTHING: Final[Container[str]] = _Everything()
"""The names for which everyone has a right without an authorizer: all names."""
