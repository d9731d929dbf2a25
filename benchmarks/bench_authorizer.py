"""Cost of the decisions about rights, with 2,000 ACLs of other users and one of this user."""

from __future__ import annotations

from typing import Final

from benchmarks.micro import Outcome, main, timed
from minikafka.base.metrics import Metrics
from minikafka.broker.clients.access import Access, Verdicts
from minikafka.broker.services import ClientConnection
from minikafka.security.acls import AclEntry, AclPermission, PatternType, ResourcePattern
from minikafka.security.authorizer import Authorizer
from minikafka.security.operations import TOPIC, WRITE, need

OTHERS: Final = 2_000
NEED: Final = need("Produce", WRITE, TOPIC)
CLIENT: Final = ClientConnection(1, "SASL_SSL", "10.0.0.1:50000", "User:alice")


def _access() -> Access:
    authorizer = Authorizer(["User:broker"])
    for number in range(OTHERS):
        kind = PatternType.PREFIXED if number % 10 == 0 else PatternType.LITERAL
        _allow(authorizer, f"User:user-{number}", ResourcePattern(TOPIC, f"topic-{number}", kind))
    _allow(authorizer, CLIENT.principal, ResourcePattern(TOPIC, "orders", PatternType.LITERAL))
    return Access(authorizer, Metrics())


def _allow(authorizer: Authorizer, principal: str, pattern: ResourcePattern) -> None:
    authorizer.update(pattern, frozenset({AclEntry(principal, "*", WRITE, AclPermission.ALLOW)}))


def _verdicts() -> Verdicts:
    found = _access().verdicts(CLIENT, NEED)
    assert found is not None
    return found


def compare_basis(operations: int) -> Outcome:
    """Find that the ACLs have not changed, as each tick with Produce requests does."""
    verdicts = _verdicts()
    basis = verdicts.basis
    return timed(operations, lambda: sum(verdicts.basis == basis for _ in range(operations)))


def find_kept_verdict(operations: int) -> Outcome:
    """Find the verdict on a topic that the connection has used before."""
    verdicts = _verdicts()
    return timed(operations, lambda: sum(verdicts.allow(b"orders") for _ in range(operations)))


def decide(operations: int) -> Outcome:
    """Decide by the ACLs, as for the first request and for each denied one."""
    access = _access()
    return timed(
        operations, lambda: sum(access.allows(CLIENT, NEED, "orders") for _ in range(operations))
    )


BENCHES = (compare_basis, find_kept_verdict, decide)

if __name__ == "__main__":
    main(*BENCHES)
