"""The brokers of the observed cluster, and how the console asks them: one port with two implementations.

Invariant: a question to one broker has its own time limit, so a broker that hangs delays no other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from shlex import quote
from typing import Any, Final, Protocol

from minikafka.tools.cluster.observation.access import BrokerAccess
from minikafka.tools.cluster.observation.sights import Known, Sights
from minikafka.tools.explain.gather import Sources

RUNNING: Final = "running"
PAUSED: Final = "paused"
DOWN: Final = "down"
UNREACHABLE: Final = "unreachable"
ASK_MS: Final = 3_000
"""Time for a broker to answer one question; a busy one with 10,000 replicas takes half a second."""


@dataclass(frozen=True, slots=True)
class BrokerMember:
    """One broker. `state`: RUNNING, PAUSED or DOWN, as far as it can be seen without a question to the broker."""

    id: int
    host: str | None
    port: int | None
    rack: str | None
    state: str


@dataclass(frozen=True, slots=True)
class CommandOptions:
    """How the commands that the console runs name its cluster.

    `before`: options in front of the command. `client`: options of commands that connect to brokers. `machine`: options
    of commands that work on processes of this machine, None if the cluster is elsewhere.
    """

    before: tuple[str, ...]
    client: tuple[str, ...]
    machine: tuple[str, ...] | None

    @property
    def where(self) -> str:
        """The options of commands that connect to brokers as text, with a space in front; "" if there are none."""
        return "".join(f" {word}" for word in map(quote, self.client))

    def command(self, *words: str, on_machine: bool = False) -> list[str]:
        """Return the words of a command, without `minikafka`."""
        options = (self.machine or ()) if on_machine else self.client
        return [*self.before, *words, *options]


class ObservedBrokers(Protocol):
    """The cluster that the console observes. Methods raise OSError and MinikafkaError."""

    options: CommandOptions
    """How commands name the cluster."""
    user: str | None
    """The user as whom the console acts; None without security."""

    async def members(self) -> Sequence[BrokerMember]:
        """Return all brokers, sorted by id."""

    async def ask(self, broker: int, question: str, argument: dict[str, Any]) -> Mapping[str, Any]:
        """Ask one broker, which has ASK_MS to answer."""

    async def sights(self, answers: Known) -> Sights:
        """Return the condition of the cluster, given the brokers' answers to the question `state`."""

    def has_faults(self) -> bool:
        """True if the cluster was started with faults, so that its connections and disks can be harmed."""

    def access(self) -> BrokerAccess:
        """Return how clients connect to the brokers."""

    def sources(self) -> AbstractAsyncContextManager[Sources]:
        """Return the sources for one explanation."""

    async def ledger_lines(self) -> list[dict[str, Any]]:
        """Return the lines that were added to the ledgers since the last call; the last ones at the first call."""

    async def close(self) -> None:
        """Close all connections."""
