"""The entry to a coordination mode: joining a cluster, and the capabilities of a broker that has joined."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from minikafka.base.ports import ControlPlane, Gate, Ledger
from minikafka.broker.capabilities.administration import Administration
from minikafka.broker.capabilities.diagnostics import Diagnostics
from minikafka.broker.capabilities.membership import Membership
from minikafka.broker.capabilities.metadata import MetadataSource
from minikafka.broker.capabilities.roles import RoleSource
from minikafka.broker.capabilities.stores import ConfigStore, IsrStore, TopicStore


@dataclass(frozen=True, slots=True)
class Capabilities:
    """One broker's access to its cluster, in one coordination mode. One object may be several capabilities."""

    membership: Membership
    roles: RoleSource
    isrs: IsrStore
    topics: TopicStore
    configs: ConfigStore
    administration: Administration
    diagnostics: Diagnostics
    claim_producer_ids: Callable[[], Awaitable[tuple[int, int]]]
    """Claim a block of producer ids that no other broker has; return its first and last id (R72).

    Raises CoordinationError, or ValueError if the stored block cannot be decoded.
    """
    metadata: MetadataSource | None = None
    """The source that is asked when clients need metadata; None if the mode passes every change on at once."""


class CoordinationMode(Protocol):
    """A coordination mode, before its broker has joined the cluster."""

    async def join(self, known: str | None) -> str:
        """Connect, and return the cluster id, which the first broker of a cluster creates.

        `known`: the cluster id of the log directories, None if they are new. Raises ClusterLost if it is another one.
        """

    def capabilities(self, control_plane: ControlPlane, ledger: Ledger, gate: Gate) -> Capabilities:
        """Return the capabilities in the joined cluster. They are idle until the broker starts them."""
