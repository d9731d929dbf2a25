"""Transactions: the open ones, the partitions whose last stable offset they hold back, and those that hang."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from minikafka.base.errors import KafkaError
from minikafka.base.model import TopicPartition
from minikafka.client.administration.transaction_admin import (
    DescribedProducers,
    ProducerState,
    TransactionDescription,
)
from minikafka.tools.console.context import Asked, Console
from minikafka.tools.console.errors import unknown
from minikafka.tools.console.observation.grid import HIGH_WATERMARK, LAST_STABLE

OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
HANGING: Final = "Hanging"
"""The state that the console gives to a transaction in a partition that no coordinator knows."""
READ_S: Final = 3
HELD_MAX: Final = 200
"""Maximum number of held-back partitions whose producers are asked for."""
SHOWN_MAX: Final = 500

Producers = Mapping[TopicPartition, DescribedProducers]


async def list_transactions(console: Console, asked: Asked) -> list[dict[str, Any]]:
    """Return the open transactions, those that hold back consumers first."""
    await console.watch.ready()
    described, held = await asyncio.gather(_described(console), _held(console))
    rows = [_row(console, one, held) for one in described]
    known = {(one.producer_id, tp) for one in described for tp in one.partitions}
    rows += [
        _hanging(console, tp, producer)
        for tp, found in held.items()
        for producer in found.producers
        if producer.start_offset is not None and (producer.producer_id, tp) not in known
    ]
    return sorted(rows, key=lambda row: (not row["holds_back"], row["started_ms"] or 0))


async def _described(console: Console) -> list[TransactionDescription]:
    """Return the open transactions whose coordinators answer."""
    transactions = console.client.transactions
    listed = (await transactions.list_those_that_answer(OPEN))[:SHOWN_MAX]
    by_coordinator: dict[int, list[str]] = {}
    for one in listed:
        by_coordinator.setdefault(one.coordinator, []).append(one.transactional_id)

    async def describe(names: Sequence[str]) -> list[TransactionDescription]:
        try:
            async with asyncio.timeout(READ_S):
                found = (await transactions.describe(names)).values()
        except (KafkaError, TimeoutError):
            return []
        return [one.found for one in found if one.found is not None and one.found.state in OPEN]

    some = await asyncio.gather(*map(describe, by_coordinator.values()))
    return [one for found in some for one in found]


async def _held(console: Console) -> Producers:
    """Return the producers of the partitions whose last stable offset is below the high watermark."""
    rows = console.watch.grid.rows
    held = [name for name, row in rows.items() if row[LAST_STABLE] is not None][:HELD_MAX]
    found: dict[TopicPartition, DescribedProducers] = {}

    async def describe(tp: TopicPartition) -> None:
        try:
            async with asyncio.timeout(READ_S):
                found.update(await console.client.transactions.describe_producers([tp]))
        except (KafkaError, TimeoutError):
            pass  # its leader is away

    await asyncio.gather(*(describe(_partition(name)) for name in held))
    return found


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def _row(console: Console, one: TransactionDescription, held: Producers) -> dict[str, Any]:
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "epoch": one.producer_epoch,
        "coordinator": one.coordinator,
        "started_ms": one.start_ms,
        "timeout_ms": one.timeout_ms,
        "partitions": list(map(str, one.partitions)),
        "holds_back": [
            _held_back(console, tp, producer)
            for tp in one.partitions
            if tp in held
            for producer in held[tp].producers
            if producer.producer_id == one.producer_id and producer.start_offset is not None
        ],
    }


def _hanging(console: Console, tp: TopicPartition, producer: ProducerState) -> dict[str, Any]:
    """Return the row of a transaction without a coordinator that answers."""
    return {
        "transactional_id": None,
        "state": HANGING,
        "producer_id": producer.producer_id,
        "epoch": producer.producer_epoch,
        "coordinator": None,
        "started_ms": producer.last_timestamp,
        "timeout_ms": None,
        "partitions": [str(tp)],
        "holds_back": [_held_back(console, tp, producer)],
    }


def _held_back(console: Console, tp: TopicPartition, producer: ProducerState) -> dict[str, Any]:
    row = console.watch.grid.rows.get(str(tp))
    return {
        "partition": str(tp),
        "start_offset": producer.start_offset,
        "last_stable_offset": row[LAST_STABLE] if row else None,
        "high_watermark": row[HIGH_WATERMARK] if row else None,
    }


async def why_transaction(console: Console, asked: Asked) -> dict[str, Any]:
    """Return what is known about a transaction: its state, and the partitions that it holds back."""
    await console.watch.ready()
    name = asked.path["id"]
    result = (await console.client.transactions.describe([name]))[name]
    if result.found is None:
        raise unknown(f"transactional id {name}")
    row = _row(console, result.found, await _held(console))
    lines = [
        f"transactional id {name}: {row['state']}, producer {row['producer_id']}, epoch {row['epoch']}, "
        f"coordinator {row['coordinator']}, partitions {', '.join(row['partitions']) or 'none'}"
    ]
    if row["started_ms"] is not None and row["state"] in OPEN:
        age_s = max(0, console.clock.wall_ms() - row["started_ms"]) / 1000
        lines.append(
            f"- it has been open for {age_s:.1f} s; its coordinator aborts it after {row['timeout_ms'] / 1000:g} s"
        )
    lines += (
        f"- {held['partition']}: its records from offset {held['start_offset']} on hold back the last stable "
        f"offset {held['last_stable_offset']}; the high watermark is {held['high_watermark']}"
        for held in row["holds_back"]
    )
    if not row["holds_back"]:
        lines.append("it holds back no partition")
    command = console.command("transactions", "describe", name)
    return {"lines": lines, "healthy": not row["holds_back"], "command": command}
