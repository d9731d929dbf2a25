"""A fault that is in effect: its end, and counts of what it has hit. Faults of networks, disks and others share it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeAlias

from minikafka.tools.cluster.blocking import finish, run_blocking
from minikafka.tools.cluster.directory import ClusterError

Hits: TypeAlias = Mapping[str, int]
"""What a fault has hit: numbers by kind, for example {"connections": 2, "bytes": 4096, "requests": 1}."""


class Fault:
    """A fault that is in effect until it is healed, also by the end of a `with` or `async with` block.

    `name`: the verb with its arguments, for messages. `hits`: what the fault had hit at the last `count` or `heal`.
    Methods block; in a coroutine, they return a coroutine to be awaited.
    """

    def __init__(
        self,
        name: str,
        *,
        count: Callable[[], Coroutine[Any, Any, Hits]],
        heal: Callable[[], Coroutine[Any, Any, Hits]],
        hits: Hits | None = None,
    ) -> None:
        self.name = name
        self.hits: Hits = dict(hits or {})
        self._count_hits = count
        self._end = heal

    def __repr__(self) -> str:
        counts = ", ".join(f"{number} {kind}" for kind, number in self.hits.items())
        return f"<Fault {self.name}: {counts or 'no hits'}>"

    @property
    def has_hit(self) -> bool:
        """True if the fault had hit anything at the last `count` or `heal`."""
        return any(self.hits.values())

    def count(self) -> Any:
        """Return what the fault has hit so far, and keep it in `hits`."""
        return finish(self._keep(self._count_hits))

    def heal(self) -> Any:
        """End the fault and return what it has hit, which stays in `hits`. A fault that is healed stays so."""
        return finish(self._keep(self._end))

    async def _keep(self, ask: Callable[[], Coroutine[Any, Any, Hits]]) -> Hits:
        self.hits = await ask()
        return self.hits

    async def __aenter__(self) -> Fault:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._keep(self._end)

    def __enter__(self) -> Fault:
        if asyncio._get_running_loop() is not None:
            raise ClusterError(f"an event loop is running in this thread: use async with {self}")
        return self

    def __exit__(self, *_: object) -> None:
        run_blocking(self._keep(self._end))
