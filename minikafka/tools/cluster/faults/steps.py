"""A named step of brokers that is held for the time of a `with` block."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from minikafka.tools.cluster.blocking import finish, run_blocking
from minikafka.tools.cluster.directory import ClusterError
from minikafka.tools.cluster.faults.names import check_step
from minikafka.tools.cluster.faults.processes import ProcessFaults
from minikafka.tools.cluster.observation.observed import WAIT_MS
from minikafka.tools.cluster.processes import is_paused


class HeldStep:
    """A step at which brokers block from the begin to the end of a `with` or `async with` block.

    Methods block; in a coroutine, they return a coroutine to be awaited.
    """

    def __init__(
        self, cluster: StepFaults, name: str, brokers: Collection[int] | None = None
    ) -> None:
        self._cluster = cluster
        self.name = name
        self._brokers = brokers

    def wait(self, timeout_ms: int = WAIT_MS) -> Any:
        """Wait until a broker blocks at the step, and return its id. Raises ClusterError after `timeout_ms`."""
        return finish(self._cluster.held(self.name, timeout_ms))

    def release(self) -> Any:
        """Let the broker that is blocked continue, before the end of the block. Brokers no longer block then."""
        return finish(self._release())

    async def _hold(self) -> None:
        await self._cluster.hold(self.name, self._brokers)

    async def _release(self) -> None:
        await self._cluster.leave_step(self.name, self._brokers)

    async def __aenter__(self) -> HeldStep:
        await self._hold()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._release()

    def __enter__(self) -> HeldStep:
        run_blocking(self._hold())
        return self

    def __exit__(self, *_: object) -> None:
        run_blocking(self._release())


class StepFaults(ProcessFaults):
    """The methods of LocalCluster that hold a step for the time of a `with` block."""

    def at_step(self, step: str, brokers: Collection[int] | None = None) -> HeldStep:
        """Return a context manager, in which brokers block at this step (see `hold`). `wait()` returns who does.

        Raises ClusterError if there is no such step.
        """
        check_step(step)
        return HeldStep(self, step, brokers)

    async def leave_step(self, step: str, brokers: Collection[int] | None = None) -> None:
        """Release a step at the brokers that answer. Raises ClusterError if one of the others is paused."""
        record = self.record
        chosen = [broker.id for broker in record.brokers if brokers is None or broker.id in brokers]
        answering = self._running.answering_ids(record)
        await self.release(step, [broker_id for broker_id in chosen if broker_id in answering])
        for broker_id in chosen:
            process = self.process(broker_id)
            if process is not None and is_paused(process):
                text = f"broker {broker_id} is paused, and may stay blocked at step {step}"
                raise ClusterError(f"{text}: resume it, then call release({step!r})")
