"""Large requests to a coordinator, passed on in parts. Other connections are served between parts.

The coordinator handles each part as a separate request: a large commit can become several batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from minikafka.broker.services import LATER, RequestContext, Steps

PART_ROWS: Final = 64
"""Number of groups, members or partitions in one part, which takes at most 0.5 ms."""
AT_ONCE_ROWS: Final = 256
"""A request with at most this many groups, members or partitions is not divided into parts."""

Row = TypeVar("Row")
Part = TypeVar("Part")
Respond: TypeAlias = Callable[[Any], None]
"""Function that takes the outcome of a request, or of one part of it. It is called once."""
Encode: TypeAlias = Callable[[int, Sequence[Any]], Steps]
"""Function (version of the API, outcomes of the parts) -> the steps that encode the response."""


def in_rows(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Yield the rows in parts of at most `PART_ROWS` rows."""
    for start in range(0, len(rows), PART_ROWS):
        yield rows[start : start + PART_ROWS]


def by_topic(topics: Iterable[tuple[str, Sequence[Row]]]) -> Iterator[list[tuple[str, list[Row]]]]:
    """Yield (topic, rows) pairs in parts that have at most `PART_ROWS` rows in total."""
    part: list[tuple[str, list[Row]]] = []
    room = PART_ROWS
    for topic, rows in topics:
        at = 0
        while at < len(rows):
            taken = list(rows[at : at + room])
            part.append((topic, taken))
            at += len(taken)
            room -= len(taken)
            if not room:
                yield part
                part, room = [], PART_ROWS
    if part:
        yield part


def answer_in_parts(
    call: Callable[[Part, Respond], None],
    parts: Iterable[Part],
    encode: Encode,
    context: RequestContext,
) -> Steps:
    """Return the `Steps` that handle a large request, one step for each part. `call(part, respond)` handles a part.

    `call` must call `respond(outcome)` once, now or later. The request is answered when all parts have outcomes.
    """
    outcomes = _Outcomes()
    for part in parts:
        call(part, outcomes.expect())
        yield
    steps = encode(context.version, outcomes.found)
    if outcomes.left:
        outcomes.complete = lambda: context.answer(steps)
        return LATER
    return (yield from steps)


class _Outcomes:
    """The outcomes of all parts of one request, in the order of the parts.

    `complete()` is called when the last outcome has arrived.
    """

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.left = 0
        self.complete: Callable[[], None] | None = None

    def expect(self) -> Respond:
        """Add a part of the request. Return the function that must be called with the outcome of this part."""
        number = len(self.found)
        self.found.append(None)
        self.left += 1

        def respond(outcome: Any) -> None:
            self.found[number] = outcome
            self.left -= 1
            if not self.left and self.complete is not None:
                self.complete()

        return respond
