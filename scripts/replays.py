"""Checks of the output of streams whose driver, executors or brokers were killed.

`exactly_once` and `in_order` compare a table or a topic with the source topic. `at_least_once` compares a copied topic
with the source topic. The functions are pure, and return a list of problems as texts, which is empty if there are none.
`at_least_once` also returns the number of duplicates.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Place: TypeAlias = tuple[int, int]
"""Partition and offset in the source topic."""
SHOWN = 3


@dataclass(frozen=True)
class Origin:
    """The query, micro-batch, task and row number from which a record was written.

    The sink writes the origin into a header of the record. The option `originHeader` is the key of this header.
    """

    query: str
    batch: int
    task: int
    sequence: int


@dataclass(frozen=True)
class Copy:
    """A record in the copy of the topic. `source`: partition and offset of the original in the source topic."""

    partition: int
    source: Place
    value: bytes
    origin: Origin


def exactly_once(
    source: Mapping[Place, bytes], rows: Iterable[tuple[Place, bytes]], output: str = "table"
) -> list[str]:
    """Return the differences between an output and the source topic. The order of the rows is ignored."""
    counts: Counter[Place] = Counter()
    wrong = []
    for place, value in rows:
        counts[place] += 1
        if source.get(place) != value:
            wrong.append(place)
    return [
        *_named(f"missing in the {output}", source.keys() - counts.keys()),
        *_named(f"more than once in the {output}", [p for p, count in counts.items() if count > 1]),
        *_named("different from the source", wrong),
    ]


def in_order(found: Iterable[tuple[int, Place]]) -> list[str]:
    """Return the records that were written out of order. `found`: partition and source of each record, in order."""
    highest: dict[tuple[int, int], int] = {}
    wrong = []
    for target, (partition, offset) in found:
        if offset < highest.setdefault((target, partition), offset):
            wrong.append((partition, offset))
        highest[target, partition] = offset
    return _named("out of order", wrong)


def at_least_once(
    source: Mapping[Place, bytes], copies: Sequence[Copy], interrupted: Collection[int]
) -> tuple[list[str], int]:
    """Return the problems of a copied topic, and the number of duplicates.

    `copies`: the records of the copied topic, in offset order within each partition. `interrupted`: the ids of the
    micro-batches during which a driver or an executor was killed. Only these micro-batches may have duplicates. All
    copies of one record must have the same origin.
    """
    found: defaultdict[Place, list[Copy]] = defaultdict(list)
    for copy in copies:
        found[copy.source].append(copy)
    repeated = [same for same in found.values() if len(same) > 1]
    batches = {copy.origin.batch for same in repeated for copy in same}
    queries = {copy.origin.query for copy in copies}
    strange = [same[0].source for same in repeated if len({copy.origin for copy in same}) > 1]
    problems = [
        *_named("missing in the copy", source.keys() - found.keys()),
        *_named(
            "different from the source",
            [c.source for c in copies if source.get(c.source) != c.value],
        ),
        *_named("duplicates with different origins", strange),
        *_named("copied out of order", _out_of_order(copies)),
    ]
    if spared := sorted(batches - set(interrupted)):
        names = ", ".join(map(str, spared))
        problems.append(f"duplicates in micro-batches {names}, which no death interrupted")
    if len(queries) > 1:
        problems.append(f"{len(queries)} queries wrote the copy: the checkpoint was not continued")
    return problems, sum(len(same) - 1 for same in repeated)


def _out_of_order(copies: Iterable[Copy]) -> list[Place]:
    """Return the source partition and offset of each record that was copied out of order.

    A record is out of order if its first copy comes after the first copy of a record with a higher source offset.
    Only records with the same source partition are compared, and only if their copies are in the same partition of
    the copied topic.
    """
    seen: set[Place] = set()
    highest: dict[tuple[int, int], int] = {}
    found = []
    for copy in copies:
        if copy.source in seen:
            continue
        seen.add(copy.source)
        partition, offset = copy.source
        if offset < highest.setdefault((copy.partition, partition), offset):
            found.append(copy.source)
        else:
            highest[copy.partition, partition] = offset
    return found


def _named(problem: str, places: Iterable[Place]) -> list[str]:
    """Return a list with one problem text for these records, or an empty list if there are no records."""
    found = sorted(places)
    if not found:
        return []
    first = ", ".join(f"{partition}:{offset}" for partition, offset in found[:SHOWN])
    return [f"{len(found):,} records {problem}, first {first} (partition:offset)"]
