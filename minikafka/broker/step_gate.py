"""A gate that can block a broker at named steps.

After `hold`, a step is held: every operation that reaches the step is blocked until `release`. The names are
`operation.step` for the steps of each mode (`deciders/controller/steps.py`, `deciders/leaders/steps.py`) and of the end
of a transaction (`deciders/transactions/steps.py`), and `broker.METHOD` for the moment before a broker carries out a
controller request with that method. A controller that is blocked at a step handles nothing else and keeps its session.
A broker that is blocked at a step handles no other controller request but still serves clients. Invariant: while no
step is held, passing the gate costs only the check of an empty dict.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final

from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.ports import Call, Clock
from minikafka.broker.rpc import messages
from minikafka.deciders.controller.steps import STEPS
from minikafka.deciders.leaders import steps as leaders_steps
from minikafka.deciders.transactions import steps as transaction_steps

logger = logging.getLogger(__name__)

AT_BROKER: Final = "broker"
"""The first part of the names `broker.METHOD`, which are steps of a broker, not of the controller."""
NAMES: Final = frozenset(
    [
        f"{operation}.{step}"
        for operations in (STEPS, leaders_steps.STEPS, transaction_steps.STEPS)
        for operation, steps in operations.items()
        for step in steps
    ]
    + [f"{AT_BROKER}.{method}" for method in messages.STATE_CHANGES]
)
"""The names of all steps that can be held."""


class StepGate:
    """The held steps, by name (`operation.step`). An operation that reaches a held step waits until it is released."""

    def __init__(self) -> None:
        self._held: dict[str, asyncio.Event] = {}
        self._blocked: list[str] = []
        self._watchers: dict[asyncio.Future[None], str] = {}

    @property
    def is_open(self) -> bool:
        """True if no step is held."""
        return not self._held

    @property
    def waiting(self) -> str:
        """Name of the step at which an operation has been blocked longest; "" if no operation is blocked."""
        return next(iter(self._blocked), "")

    def hold(self, step: str) -> None:
        """Hold a step: block every operation that reaches it. Raises KafkaError INVALID_REQUEST for unknown steps."""
        if step not in NAMES:
            known = ", ".join(sorted(NAMES))
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"unknown step {step!r}; known steps: {known}"
            )
        self._held.setdefault(step, asyncio.Event())

    def release(self, step: str) -> None:
        """Stop holding this step, and let the operations that are blocked at this step continue."""
        released = self._held.pop(step, None)
        if released is not None:
            released.set()

    def open(self) -> None:
        """Release every held step, and let all blocked operations continue."""
        for step in tuple(self._held):
            self.release(step)

    async def reached(self, operation: str, step: str) -> None:
        if not self._held:
            return
        name = f"{operation}.{step}"
        held = self._held.get(name)
        if held is None:
            return
        logger.warning("Held at step %s", name)
        self._blocked.append(name)
        self._notify_watchers(name)
        try:
            await held.wait()
        finally:
            self._blocked.remove(name)

    async def wait_for_arrival(self, step: str, clock: Clock, timeout_ms: int) -> None:
        """Return when an operation is blocked at this step, or after the timeout."""
        if step in self._blocked or timeout_ms <= 0:
            return
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers[arrived] = step
        timer = clock.call_later(timeout_ms, lambda: _resolve(arrived))
        try:
            await arrived
        finally:
            timer.cancel()
            del self._watchers[arrived]

    def _notify_watchers(self, name: str) -> None:
        for watcher, step in self._watchers.items():
            if step == name:
                _resolve(watcher)

    async def serve(self, call: Call, clock: Clock) -> dict[str, Any]:
        """Handle a call that holds, releases or watches a step (`messages.GATE_CALLS`).

        Return the names of the held steps, and of the steps at which an operation is blocked. Raises KafkaError.
        """
        if call.method == messages.STEPS:
            step, wait_ms = messages.decode_steps(call.body)
            await self.wait_for_arrival(step, clock, wait_ms)
        elif call.method == messages.HOLD_STEP:
            self.hold(messages.decode_step(call.body))
        else:
            self.release(messages.decode_step(call.body))
        return messages.encode_gate_state(self._held, self._blocked)


def _resolve(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)
