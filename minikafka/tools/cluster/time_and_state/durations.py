"""Lengths of time, as users write them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

from minikafka.broker.rpc.time_calls import ADVANCED_MAX_MS
from minikafka.tools.cluster.directory import ClusterError

_UNITS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_PART: Final = re.compile(r"([0-9]{1,12})(ms|s|m|h|d)")
_RULE: Final = "give a timedelta, or a text such as '8d', '36h' or '1h30m' (units: d, h, m, s, ms)"


def milliseconds(duration: timedelta | str) -> int:
    """Return a length of time in milliseconds. Raises ClusterError if it is no length from 1 ms to a hundred years."""
    if isinstance(duration, timedelta):
        found = duration // timedelta(milliseconds=1)
    elif isinstance(duration, str):
        text = "".join(duration.split())
        parts = _PART.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            raise ClusterError(f"{duration!r} is not a length of time: {_RULE}")
        found = sum(int(number) * _UNITS[unit] for number, unit in parts)
    else:
        raise ClusterError(f"{duration!r} is not a length of time: {_RULE}")
    if not 0 < found <= ADVANCED_MAX_MS:
        days = ADVANCED_MAX_MS // _UNITS["d"]
        raise ClusterError(f"the clock can advance by 1 ms to {days} days, not by {duration!r}")
    return found
