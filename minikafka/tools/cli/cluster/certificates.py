"""The certificates that expire soon, for `cluster health`."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from minikafka.broker.reports.certificates import DAY_MS


def certificate_notes(answers: Mapping[int, Mapping[str, Any]], now_ms: int) -> list[str]:
    """Return a sentence for each certificate that expires soon, with its file and the brokers that use it.

    `answers`: the brokers' answers to the call `state`, by broker id. `now_ms`: the current time (Unix ms).
    """
    users: dict[tuple[int, str, str], list[int]] = {}
    for id_, answer in sorted(answers.items()):
        for each in answer.get("certificates", ()):  # brokers of older versions do not report them
            row = each["ends_ms"], each["source"], each["subject"]
            users.setdefault(row, []).append(id_)
    return [
        f"the certificate {subject} in {source} {_when(ends_ms, now_ms)} ({_brokers(ids)}); {_remedy(source)}"
        for (ends_ms, source, subject), ids in sorted(users.items())
    ]


def _when(ends_ms: int, now_ms: int) -> str:
    date = datetime.fromtimestamp(ends_ms / 1000, UTC).date()
    if ends_ms <= now_ms:
        return f"expired on {date}"
    days = (ends_ms - now_ms) // DAY_MS
    left = f"in {days} days" if days > 1 else "within two days"
    return f"expires {left}, on {date}"


def _remedy(source: str) -> str:
    is_key = source.startswith("ssl.")
    return "change its value and restart" if is_key else "replace it, which needs no restart"


def _brokers(ids: list[int]) -> str:
    return f"broker{'s' if len(ids) > 1 else ''} {', '.join(map(str, ids))}"
