"""The short and the long form of tests that repeat one scenario under many schedules.

The suite runs the short form. `MINIKAFKA_LONG_TESTS=1` in the environment selects the long form.
"""

from __future__ import annotations

import os
from typing import Final

IS_LONG: Final = bool(os.environ.get("MINIKAFKA_LONG_TESTS"))


def seeds(short: int, long: int) -> range:
    """Return the first `short` seeds, in the long form the first `long` seeds."""
    return range(long if IS_LONG else short)
