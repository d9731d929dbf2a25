"""What a web server of the console serves: paths with their views, and streams of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from minikafka.tools.console.context import Asked

LIMIT_S: Final = 12
"""Time for a view. Each question in it has a shorter limit of its own."""


class Route(NamedTuple):
    """One path of the API. `view`: returns JSON-able values."""

    method: str
    path: str
    view: Callable[[Asked], Awaitable[Any]]
    limit_s: float = LIMIT_S


class StreamEvent(NamedTuple):
    """One server-sent event. `name` "": only a sign of life. `id`: for Last-Event-ID, "" without one."""

    name: str
    data: Any = None
    id: str = ""


Stream: TypeAlias = Callable[[Asked], AsyncGenerator[StreamEvent, None]]


class Site(Protocol):
    """One console: of a running cluster, or of ledgers."""

    routes: Sequence[Route]
    streams: Mapping[str, Stream]

    async def close(self) -> None:
        """End all work."""
