"""The named steps of the end of a transaction.

A test or a user can hold or kill the coordinator at a step. The coordinator announces a step before it performs the
step. Invariant: the names never change, because the step gate uses them.
"""

from __future__ import annotations

from typing import Final

TRANSACTION: Final = "transaction"
PREPARE: Final = "prepare"
MARKERS: Final = "markers"
NEXT_MARKERS: Final = "next-markers"
COMPLETE: Final = "complete"

STEPS: Final[dict[str, dict[str, str]]] = {
    TRANSACTION: {
        PREPARE: "write the decision to commit or abort, which a client's EndTxn asks for",
        MARKERS: "send the marker to the first partition; the decision is written",
        NEXT_MARKERS: "send the marker to the other partitions; the first partition has it",
        COMPLETE: "write that every partition has the marker",
    },
}
"""Operation -> step -> description of the step, in the order of the steps."""
