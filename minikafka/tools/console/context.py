"""What the views of the console share: the observed cluster, its client, and the arguments of a request."""

from __future__ import annotations

import asyncio
import shlex
from collections import deque
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from minikafka.base.model import TopicPartition
from minikafka.base.ports import Clock
from minikafka.client import Client
from minikafka.tools.console.errors import invalid
from minikafka.tools.console.observation.members import ObservedBrokers
from minikafka.tools.console.observation.watch import ClusterWatch

REQUEST_MS: Final = 1_500
"""Time for one broker to answer a client's request; then another one is tried."""
API_MS: Final = 4_000
"""Time for a view to read what it shows."""
ACTIONS_KEPT: Final = 200
ACTIONS_AT_ONCE: Final = 4
_INT_MAX: Final = 2**63 - 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: the parts of its path, its query, and the JSON object in its body.

    `last_id`: the id of the last event that the viewer of a stream has received, "" if it is new.
    """

    path: Mapping[str, str]
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    last_id: str = ""

    @property
    def partition(self) -> TopicPartition:
        """The partition in the path. Raises RequestRefused."""
        number = self.path["partition"]
        if not (number.isascii() and number.isdecimal() and len(number) < 10):
            raise invalid(f"{number!r} is not the number of a partition")
        return TopicPartition(self.path["topic"], int(number))

    def number(self, name: str, default: int, highest: int = _INT_MAX) -> int:
        """Return a number from 0 on in the query. Raises RequestRefused."""
        text = self.query.get(name) or str(default)
        if not (text.isascii() and text.isdecimal() and int(text) <= highest):
            raise invalid(f"{name}={text!r} is not a number from 0 to {highest}")
        return int(text)


class Console:
    """One console. Methods may raise KafkaError."""

    def __init__(self, observed: ObservedBrokers, clock: Clock) -> None:
        self.observed = observed
        self.clock = clock
        self.watch = ClusterWatch(observed, clock)
        self.actions: deque[dict[str, Any]] = deque(maxlen=ACTIONS_KEPT)
        """The last actions, the oldest first."""
        self._running = asyncio.Semaphore(ACTIONS_AT_ONCE)
        self._requests: set[asyncio.Task[Any]] = set()
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """The client of all views, which connects as the console's user."""
        if self._client is None:
            servers, connector = self.observed.access()
            self._client = Client(
                servers,
                connector=connector,
                client_id="minikafka-console",
                request_timeout_ms=REQUEST_MS,
                delivery_timeout_ms=API_MS,
                api_timeout_ms=API_MS,
            )
        return self._client

    def command(self, *words: str) -> str:
        """Return the command line of a command that connects to brokers, for people."""
        return shlex.join(["minikafka", *self.observed.options.command(*words)])

    async def run(self, command: Coroutine[Any, Any, T]) -> T:
        """Run the command of an action, as one of at most `ACTIONS_AT_ONCE`, and return its result.

        `close` cancels the request that waits for it: aiohttp does not.
        """
        request = asyncio.current_task()
        assert request is not None
        self._requests.add(request)
        try:
            async with self._running:
                return await command
        finally:
            command.close()  # one that was cancelled before its first step
            self._requests.discard(request)

    async def close(self) -> None:
        """Interrupt all commands, wait until they have ended, end the observation, and close all connections."""
        for request in self._requests:
            request.cancel()
        if self._requests:
            await asyncio.wait(self._requests)
        await self.watch.close()
        if self._client is not None:
            await self._client.close()
        await self.observed.close()
