"""The states of the transactional batches in replicas: visible, aborted or open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

import pyarrow as pa

from minikafka.base.open_transactions import OpenTransactions
from minikafka.record.transactions import ABORT, ABORTED, OPEN, VISIBLE
from minikafka.spark.replicas.headers import BATCHES

STATES: Final = f"{BATCHES}, state int"
"""Columns of the table of batches with the outcome of each batch (`record/transactions.py`)."""
_LOG: Final = ("broker", "topic", "partition")
_Row: TypeAlias = tuple[pa.RecordBatch, int]
"""A table, and the number of a row in it."""


def read_states(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the column `state` to tables of transactional batches and markers (`BATCHES`). Runs on executors.

    The batches of one replica's log must be together, and in rising order of their offsets. A batch is returned when
    the marker of its transaction has been read, so the rows change their order.
    """
    log, open_ = None, OpenTransactions[_Row]()
    for table in tables:
        decided = _Decided()
        columns = [table.column(name).to_pylist() for name in (*_LOG, "producer_id", "marker")]
        for row, (*place, producer_id, marker) in enumerate(zip(*columns, strict=True)):
            if place != log:
                decided.add(open_, OPEN)
                log, open_ = place, OpenTransactions()
            if marker is None:
                open_.add(producer_id, (table, row))
            else:
                rows = [*open_.end(producer_id), (table, row)]
                decided.add(rows, ABORTED if marker == ABORT else VISIBLE)
        yield from decided.tables()
    decided = _Decided()
    decided.add(open_, OPEN)
    yield from decided.tables()


class _Decided:
    """The rows whose state is known, by table."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[pa.RecordBatch, list[int], list[int]]] = {}

    def add(self, rows: Iterable[_Row], state: int) -> None:
        for table, row in rows:
            _, numbers, states = self._rows.setdefault(id(table), (table, [], []))
            numbers.append(row)
            states.append(state)

    def tables(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of each table, with the column `state`."""
        for table, numbers, states in self._rows.values():
            chosen = table.take(pa.array(numbers, pa.int64()))
            columns = [*chosen.columns, pa.array(states, pa.int32())]
            yield pa.RecordBatch.from_arrays(columns, [*table.schema.names, "state"])
