"""Conversion of durations such as `30s`, `5m` and `1 hour` to seconds."""

from __future__ import annotations

import re
from typing import Final

from minikafka.base.errors import ConfigError

_DURATION: Final = re.compile(r"([0-9]{1,6})\s*([a-z]+)")
_UNITS: Final = {
    **dict.fromkeys(("s", "sec", "second"), 1),
    **dict.fromkeys(("m", "min", "minute"), 60),
    **dict.fromkeys(("h", "hour"), 3_600),
    **dict.fromkeys(("d", "day"), 86_400),
}


def seconds(what: str, text: str) -> int:
    """Return the seconds in a duration such as `5m`. Raises `ConfigError` for an invalid or zero duration.

    `what`: the name of the duration in the error message.
    """
    found = _DURATION.fullmatch(text.strip().lower())
    unit = found and _UNITS.get(found[2].removesuffix("s") or "s")
    if not found or not unit or not int(found[1]):
        raise ConfigError(f"{what} must be a duration such as 30s, 5m, 1h or 1d, not {text!r}")
    return int(found[1]) * unit
