"""A batch by its content: the offsets that its sources read, and its query."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from minikafka.spark.key_stores import prepared
from minikafka.spark.lakehouse.append import SingleBatch
from minikafka.spark.pipelines.run.definition import Definition, SourceView
from minikafka.spark.source import planning
from minikafka.spark.source.bounds import ENDING, STARTING
from minikafka.spark.source.options import Mode, parse
from minikafka.spark.source.ranges import OffsetRange
from minikafka.spark.source.subscription import ASSIGN, PATTERN, SUBSCRIBE

_CHOSEN = frozenset(name.lower() for name in (*STARTING, *ENDING, ASSIGN, PATTERN, SUBSCRIBE))


def planned(definition: Definition) -> tuple[Definition, SingleBatch]:
    """Return the batch with the offsets that its sources would read now, and its content.

    A batch that was killed is recognized by its content when it runs again.
    """
    sources, read = [], []
    for source in definition.sources:
        found = planning.batch_ranges(prepared(parse(source.options, Mode.BATCH)))
        sources.append(_fixed(source, [one for one, _ in found]))
        decode = source.decode
        ranges = [(*one.tp, one.start, one.end, topic) for one, topic in found]
        read.append([source.name, decode.format, decode.schema, ranges])
    steps = [[one.name, one.sql, one.drop_duplicates] for one in definition.steps]
    text = json.dumps([definition.name, read, steps])
    digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return replace(definition, sources=tuple(sources)), SingleBatch(definition.name, digest)


def _fixed(source: SourceView, ranges: Sequence[OffsetRange]) -> SourceView:
    """Return the source with the offsets of the ranges instead of its bounds."""
    if not ranges:
        return source
    assigned: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for one in ranges:
        topic, partition = one.tp
        assigned.setdefault(topic, []).append(partition)
        starts.setdefault(topic, {})[str(partition)] = one.start
        ends.setdefault(topic, {})[str(partition)] = one.end
    fixed: dict[str, Any] = {ASSIGN: assigned, STARTING[-1]: starts, ENDING[-1]: ends}
    kept = {name: one for name, one in source.options.items() if name.lower() not in _CHOSEN}
    return replace(source, options=kept | {name: json.dumps(one) for name, one in fixed.items()})
