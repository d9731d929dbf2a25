"""Calls that are cancelled as soon as a broker is no longer the active controller.

Invariant: `wait_for` leaves no task running, whether it returns, raises or is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine
from typing import TypeVar

from minikafka.base.errors import ErrorCode, KafkaError

Result = TypeVar("Result")


class Controllership:
    """The time during which one broker is the active controller."""

    def __init__(self) -> None:
        self._ended = asyncio.Event()

    @property
    def has_ended(self) -> bool:
        """True once the broker is no longer the controller."""
        return self._ended.is_set()

    def end(self) -> None:
        """Mark the controllership as ended: every `wait_for` raises NOT_CONTROLLER. A second call has no effect."""
        self._ended.set()

    async def wait_for(self, call: Awaitable[Result]) -> Result:
        """Return the result of `call`, or cancel `call` when the controllership ends.

        Raises KafkaError NOT_CONTROLLER if `call` is cancelled. An exception of `call` is raised unchanged.
        """
        try:
            async with asyncio.TaskGroup() as group:
                calling = group.create_task(_outcome(call))
                ending = group.create_task(self._ended.wait())
                await asyncio.wait((calling, ending), return_when=asyncio.FIRST_COMPLETED)
                calling.cancel()  # no effect on a task that is done
                ending.cancel()
        finally:
            if isinstance(call, Coroutine):
                call.close()  # Python would warn of a call that is cancelled before its first step
        if calling.cancelled():
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controller changed before it answered")
        outcome = calling.result()
        if isinstance(outcome, _Failed):
            raise outcome.error
        return outcome


class _Failed:
    """The exception of a call, returned as a value. A task group would wrap a raised exception in an ExceptionGroup."""

    __slots__ = ("error",)

    def __init__(self, error: Exception) -> None:
        self.error = error


async def _outcome(call: Awaitable[Result]) -> Result | _Failed:
    try:
        return await call
    except Exception as error:  # noqa: BLE001 - raised again by wait_for
        return _Failed(error)
