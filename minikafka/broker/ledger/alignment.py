"""The times of several brokers' ledger lines on one clock, if the brokers' clocks differ.

The controller writes a line before it sends a request, and a line after it has received the response; the broker
writes the lines about the effect in between. An effect whose time is outside this interval was therefore written
by another clock. Its time, and the times of the broker's lines around it, are moved by the smallest amount that
fits. Differences below `IGNORED_MS` are not corrected. The clock that counts is that of the first controller.
The module does no I/O.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from minikafka.broker.ledger.record import BROKER, EFFECT, REQUEST, RESPONSE

Line: TypeAlias = dict[str, Any]
IGNORED_MS: Final = 500
_Key: TypeAlias = tuple[str, int, str]
"""Cause, id of the broker and name of a request."""


class _Anchor(NamedTuple):
    """A line about an effect, with its place in the broker's ledger, and the request that caused the effect.

    `sent`, `answered`: times of the lines of the controller; `answered` is None without a response.
    """

    order: tuple[int, int]
    broker: int
    place: int
    time: int
    controller: int
    sent: int
    answered: int | None


def aligned(ledgers: Sequence[Sequence[Line]]) -> list[list[Line]]:
    """Return the ledgers of several brokers with corrected times. The given lines are not changed."""
    steps: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    shifts: defaultdict[int, int] = defaultdict(int)
    for anchor in sorted(_anchors(ledgers)):
        base, shift = shifts[anchor.controller], shifts[anchor.broker]
        shifts[anchor.broker] += _missing(anchor, anchor.time + shift - base)
        steps[anchor.broker].append((anchor.place, shifts[anchor.broker]))
    return [
        _moved(ledger, steps[ledger[0]["broker"]]) if ledger else list(ledger) for ledger in ledgers
    ]


def _missing(anchor: _Anchor, time: int) -> int:
    """Return the milliseconds to add to `time` to bring it between the controller's request and the response.

    `time`: the time of the effect, after the shifts of both brokers' clocks that are known so far.
    """
    if time < anchor.sent - IGNORED_MS:
        return anchor.sent - time
    if anchor.answered is not None and time > anchor.answered + IGNORED_MS:
        return anchor.answered - time
    return 0


def _anchors(ledgers: Sequence[Sequence[Line]]) -> Iterator[_Anchor]:
    sent: dict[_Key, Line] = {}
    answered: dict[_Key, Line] = {}
    for line in (line for ledger in ledgers for line in ledger):
        if line["kind"] == REQUEST:
            sent.setdefault((line["cause"], line["to"], line["request"]), line)
        elif line["kind"] == RESPONSE:
            answered[line["cause"], line["from"], line["request"]] = line
    for ledger in ledgers:
        for place, line in enumerate(ledger):
            key = (line["cause"], line["broker"], line.get("request", ""))
            if line["kind"] == EFFECT and key in sent and sent[key]["broker"] != line["broker"]:
                yield _anchor(place, line, sent[key], answered.get(key))


def _anchor(place: int, line: Line, sent: Line, answered: Mapping[str, Any] | None) -> _Anchor:
    epoch, _, number = line["cause"].partition("-")
    return _Anchor(
        (int(epoch), int(number)),
        line["broker"],
        place,
        line["time"],
        sent["broker"],
        sent["time"],
        None if answered is None else answered["time"],
    )


def _moved(ledger: Sequence[Line], steps: Sequence[tuple[int, int]]) -> list[Line]:
    """Return the lines of one broker with corrected times.

    `steps`: places in the ledger, with the milliseconds to add from there on. The lines between a start of the broker
    and the next step get the shift of that step, because a restarted broker may have another clock.
    """
    if not any(shift for _, shift in steps):
        return list(ledger)
    steps = sorted(steps)
    places = list(_first_shifted_lines(ledger, [place for place, _ in steps]))
    moved = []
    for place, line in enumerate(ledger):
        step = bisect_right(places, place) - 1
        shift = steps[step][1] if step >= 0 else 0
        moved.append(line | {"time": line["time"] + shift} if shift else line)
    return moved


def _first_shifted_lines(ledger: Sequence[Line], places: Sequence[int]) -> Iterator[int]:
    """Yield, for the place of each step, the place of the first line whose time the step shifts."""
    starts = [
        place
        for place, line in enumerate(ledger)
        if line["kind"] == BROKER and line["fact"] == "started"
    ]
    before = -1
    for place in places:
        between = starts[bisect_right(starts, before) : bisect_right(starts, place)]
        yield between[-1] if between else (place if before >= 0 else 0)
        before = place
