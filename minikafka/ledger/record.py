"""What a line of the ledger is: its kinds, and what each holds besides `time`, `broker`, `n` and `cause`.

One line is one JSON object. `cause` is the id of the controller event behind it, `EPOCH-NUMBER`, or ""
for what no event caused (a leader's own ISR change). Partitions are `[topic, number]` pairs.
Invariant: a line is written after the fact it tells, except `event` and `step`, which are written before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

EVENT: Final = "event"
"""The controller begins with an event: `event` (its class name), what it carries in short."""
STEP: Final = "step"
"""An operation reached a named step: `operation`, `step`, `partitions`."""
DECISION: Final = "decision"
"""A state machine moved partitions or replicas, or refused to."""
WRITE: Final = "write"
"""A multi was answered: `operations` (kind, path, expected and actual version), `zxid`, `outcome`."""
REQUEST: Final = "request"
"""A request was handed to the channel of a broker: `to`, `request`, `partitions`."""
RESPONSE: Final = "response"
"""A broker answered: `from`, `request`, `error`, `partitions` with an error."""
EFFECT: Final = "effect"
"""A broker carried something out: `request`, `partitions` with what became of each."""


class Nothing:
    """The ledger that keeps no record."""

    def record(self, kind: str, cause: str, fields: Mapping[str, Any]) -> None:
        """Do nothing."""
