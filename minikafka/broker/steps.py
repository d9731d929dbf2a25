"""The gate at the named steps of the controller (`controller/steps.py`): open, unless a step is held.

Invariant: while nothing is held, passing costs nothing but a look into an empty set; a held step lets
nobody through until it is released.
"""

from __future__ import annotations

import asyncio
import logging

logger = logging.getLogger(__name__)


class StepGate:
    """Steps by `operation.step`; held ones stop whoever reaches them."""

    def __init__(self) -> None:
        self.waiting: str = ""
        """The step at which the controller stands now, "" when it stands at none."""
        self._held: dict[str, asyncio.Event] = {}

    def hold(self, step: str) -> None:
        """From now on nobody passes this step."""
        self._held.setdefault(step, asyncio.Event())

    def release(self, step: str) -> None:
        """Whoever waits at this step goes on, and it is held no more."""
        released = self._held.pop(step, None)
        if released is not None:
            released.set()

    async def reached(self, operation: str, step: str) -> None:
        """Pass, or wait until released."""
        if not self._held:
            return
        name = f"{operation}.{step}"
        held = self._held.get(name)
        if held is None:
            return
        logger.warning("held at step %s", name)
        self.waiting = name
        await held.wait()
        self.waiting = ""
