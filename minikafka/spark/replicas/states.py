"""The states of the transactional batches in replicas: visible, aborted or open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa

from minikafka.record.transactions import Outcomes
from minikafka.spark.replicas.headers import BATCHES

STATES: Final = f"{BATCHES}, state int"
"""Columns of the table of batches with the outcome of each batch (`record/transactions.py`)."""
_LOG: Final = ("broker", "topic", "partition")


def read_states(tables: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the column `state` to tables of transactional batches and markers (`BATCHES`). Runs on executors.

    The batches of one replica's log must be together, and in descending order of their offsets.
    """
    log, outcomes = None, Outcomes()
    for table in tables:
        columns = [table.column(name).to_pylist() for name in (*_LOG, "producer_id", "marker")]
        states = []
        for *place, producer_id, marker in zip(*columns, strict=True):
            if place != log:
                log, outcomes = place, Outcomes()
            states.append(outcomes.of(producer_id, marker))
        names = [*table.schema.names, "state"]
        yield pa.RecordBatch.from_arrays([*table.columns, pa.array(states, pa.int32())], names)
