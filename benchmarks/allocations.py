"""Counts the objects that the product allocates, and the bytecode instructions that it executes, line by line.

`sys.getallocatedblocks` counts the blocks in use. It is read before every instruction of the product's code, and each
increase is counted at the line of the instruction before. So an object counts even if the next instruction frees it,
which a comparison of the blocks before and after a request would not show. Instructions that build a list, tuple,
dict, set, string or function always count as one object, because CPython may reuse a freed one. The instructions show
the objects that this count overlooks: no Python code makes objects without executing instructions. Only code in the
folder `minikafka` is counted. Code that it calls in other folders or in C counts at the line of the call.
"""

from __future__ import annotations

import dis
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import minikafka

PRODUCT = str(Path(minikafka.__file__).parent)
SIMULATION = f"{PRODUCT}/simulation/"
"""The parts of a broker in memory, which stand in for the machine. They do not count."""
_BUILDS = frozenset(
    dis.opmap[name]
    for name in (
        "BUILD_CONST_KEY_MAP",
        "BUILD_LIST",
        "BUILD_MAP",
        "BUILD_SET",
        "BUILD_SLICE",
        "BUILD_STRING",
        "BUILD_TUPLE",
        "FORMAT_VALUE",
        "LIST_TO_TUPLE",
        "MAKE_FUNCTION",
        "RETURN_GENERATOR",
    )
    if name in dis.opmap
)
Place = tuple[str, int]


class Cost(NamedTuple):
    """The mean number of objects and instructions of one request, or the most that it may cost."""

    objects: float
    instructions: float

    def __str__(self) -> str:
        return f"{self.objects:.2f} objects, {self.instructions:.2f} instructions"


class Allocations:
    """The counts so far, by file and line."""

    def __init__(self) -> None:
        self.objects: Counter[Place] = Counter()
        self.instructions: Counter[Place] = Counter()
        self._blocks = 0
        self._at: Place | None = None
        self._is_build = False
        self._known: dict[tuple[CodeType, int], tuple[Place, bool]] = {}

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count what the body of the `with` statement calls."""
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
            self._at = None

    def _enter(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any] | None:
        self._note()
        self._at = None
        file = frame.f_code.co_filename
        if not file.startswith(PRODUCT) or file.startswith(SIMULATION):
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self._blocks = sys.getallocatedblocks()
        return self._step

    def _step(self, frame: FrameType, event: str, arg: object) -> Callable[..., Any]:
        self._note()
        if event == "opcode":
            key = frame.f_code, frame.f_lasti
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = _described(frame)
            self._at, self._is_build = known
            self.instructions[self._at] += 1
        self._blocks = sys.getallocatedblocks()
        return self._step

    def _note(self) -> None:
        """Count the objects of the last instruction at its line."""
        made = sys.getallocatedblocks() - self._blocks
        if self._at is not None:
            self.objects[self._at] += max(made, self._is_build)

    def reset(self) -> None:
        """Set the counts to 0."""
        self.objects.clear()
        self.instructions.clear()

    def mean(self, requests: int) -> Cost:
        """Return the mean cost of so many requests."""
        return Cost(self.objects.total() / requests, self.instructions.total() / requests)

    def excess(self, requests: int, budget: Cost) -> str:
        """Return "" if the mean of the requests is within the budget, else the counts and the lines with the most."""
        found = [
            _over(name, counts, requests, most)
            for name, counts, most in zip(
                Cost._fields, (self.objects, self.instructions), budget, strict=True
            )
        ]
        return "\n".join(filter(None, found))


def _described(frame: FrameType) -> tuple[Place, bool]:
    """Return the line of the next instruction, and True if the instruction always makes an object."""
    code = frame.f_code
    return (code.co_filename, frame.f_lineno), code.co_code[frame.f_lasti] in _BUILDS


def _over(name: str, counts: Counter[Place], requests: int, most: float) -> str:
    mean = counts.total() / requests
    if mean <= most:
        return ""
    lines = [
        f"    {count / requests:8.1f}  {Path(file).relative_to(PRODUCT)}:{line}"
        for (file, line), count in counts.most_common(12)
    ]
    return "\n".join([f"{mean:.1f} {name} per request, at most {most:.1f}; the most at:", *lines])
