"""The console of a running cluster: its paths and streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from minikafka.tools.console.context import Asked, Console
from minikafka.tools.console.observation.frames import (
    frame,
    ledger_records,
    seen_and_unseen,
    snapshot,
)
from minikafka.tools.console.observation.watch import FRAME_MS, Viewer
from minikafka.tools.console.site import LIMIT_S, Route, Stream, StreamEvent
from minikafka.tools.console.views.actions import (
    RUN_MAX_S,
    list_actions,
    list_runs,
    plan_action,
    run_action,
)
from minikafka.tools.console.views.groups import list_groups, show_group, why_group
from minikafka.tools.console.views.open_transactions import list_transactions, why_transaction
from minikafka.tools.console.views.partition import show_partition, why_partition
from minikafka.tools.console.views.records import show_records, tail
from minikafka.tools.console.views.topics import list_topics, show_configs

PING_S: Final = 10
"""Interval of signs of life, which fail if the viewer is gone."""

_View = Callable[[Console, Asked], Awaitable[Any]]
_VIEWS: Final[Mapping[tuple[str, str], _View]] = {
    ("GET", "/api/partition/{topic}/{partition}"): show_partition,
    ("GET", "/api/why/partition/{topic}/{partition}"): why_partition,
    ("GET", "/api/why/group/{group}"): why_group,
    ("GET", "/api/why/transaction/{id}"): why_transaction,
    ("GET", "/api/groups"): list_groups,
    ("GET", "/api/groups/{group}"): show_group,
    ("GET", "/api/transactions"): list_transactions,
    ("GET", "/api/topics"): list_topics,
    ("GET", "/api/topics/{topic}/configs"): show_configs,
    ("GET", "/api/records/{topic}"): show_records,
    ("GET", "/api/actions"): list_actions,
    ("GET", "/api/actions/runs"): list_runs,
    ("POST", "/api/actions/plan"): plan_action,
    ("POST", "/api/actions/run"): run_action,
}
_LIMITS: Final[Mapping[str, float]] = {"/api/actions/run": RUN_MAX_S + LIMIT_S}


class LiveSite:
    """The site of one running cluster.

    `run`: begins the ids of ledger records, so that those of an earlier console are not taken for its own.
    """

    def __init__(self, console: Console, run: str) -> None:
        self._console = console
        self._run = run
        self.routes: Sequence[Route] = [
            Route(method, path, partial(view, console), _LIMITS.get(path, LIMIT_S))
            for (method, path), view in _VIEWS.items()
        ]
        self.streams: Mapping[str, Stream] = {
            "/api/stream": self._changes,
            "/api/tail/{topic}": partial(tail, console),
        }

    async def close(self) -> None:
        """End the observation, and close all connections."""
        await self._console.close()

    async def _changes(self, asked: Asked) -> AsyncGenerator[StreamEvent, None]:
        """Yield the cluster, and then what changes of it."""
        watch = self._console.watch
        viewer = Viewer(filter(None, asked.query.get("topics", "").split(",")))
        watch.add(viewer)
        self._resume(viewer, asked.last_id)
        try:
            await watch.ready()
            yield StreamEvent("snapshot", snapshot(watch, viewer))
            while True:
                viewer.changed.clear()
                if found := frame(watch, viewer):
                    yield StreamEvent("frame", found)
                for name, data in seen_and_unseen(watch, viewer):
                    yield StreamEvent(name, data)
                for number, record in ledger_records(watch, viewer):
                    yield StreamEvent("ledger", record, f"{self._run}-{number}")
                await watch.clock.sleep(FRAME_MS)
                with suppress(TimeoutError):
                    async with asyncio.timeout(PING_S):
                        await viewer.changed.wait()
                if not viewer.changed.is_set():
                    yield StreamEvent("")
        finally:
            watch.remove(viewer)

    def _resume(self, viewer: Viewer, last_id: str) -> None:
        """Let a viewer that was connected before get only the ledger records after the last one that it received."""
        run, _, number = last_id.rpartition("-")
        if run == self._run and number.isascii() and number.isdecimal():
            viewer.ledger_at = int(number) + 1
