"""What belongs to each open transaction of a log that is read in order: the one rule for the end of a transaction.

The transaction index, the group coordinator and `minikafka pipeline check` use this class: what belongs to a producer's
transaction has the outcome of the producer's next marker. Readers of single ranges, such as the log cleaner and the
Spark source, use the aborted transactions that were found in this way (`kafka/records/transactions.py`). `holding` is
the sentence with which clients explain that they wait for such a transaction.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Generic, TypeVar

from minikafka.base.model import TopicPartition

Item = TypeVar("Item")


class OpenTransactions(Generic[Item]):
    """The items of each open transaction, by producer."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[int, list[Item]] = {}

    def __contains__(self, producer_id: int) -> bool:
        return producer_id in self._items

    def __iter__(self) -> Iterator[Item]:
        for items in self._items.values():
            yield from items

    def add(self, producer_id: int, item: Item) -> None:
        """Add an item to the producer's transaction, which the first item opens."""
        self._items.setdefault(producer_id, []).append(item)

    def remove(self, producer_id: int, item: Item) -> bool:
        """Remove an item that is not in the log after all; return False if its transaction has ended."""
        items = self._items.get(producer_id, [])
        if item not in items:
            return False
        items.remove(item)
        return True

    def end(self, producer_id: int) -> list[Item]:
        """End the producer's transaction, whose marker is read. Return its items, which all have the same outcome."""
        return self._items.pop(producer_id, [])


def holding(
    tp: TopicPartition,
    stable: int,
    producer_id: int | None = None,
    start: int | None = None,
    transactional_id: str | None = None,
    is_complete: bool = True,
) -> str:
    """Return why a reader of committed records waits at the last stable offset `stable`, and how to end this.

    `producer_id` and `start`: the producer of the earliest open transaction, None if it is not known, and the first
    offset of the transaction. `transactional_id`: None if no broker has named it. `is_complete`: every broker has
    answered.
    """
    text = f"{tp}: records from offset {stable} on are held back by an open transaction"
    if producer_id is None:
        return f"{text}; `minikafka why {tp}` names it"
    if transactional_id is not None:
        name = shlex.quote(transactional_id)
        return (
            f"{text} of transactional id {transactional_id} (producer {producer_id}, since offset {start});"
            f" `minikafka transactions fence {name}` aborts it now and fences its producer"
        )
    text += f" of producer {producer_id} (since offset {start})"
    if not is_complete:
        return f"{text}; `minikafka why {tp}` names its transactional id"
    return (
        f"{text}, which no coordinator knows;"
        f" `minikafka transactions abort {tp} --start-offset {start}` aborts it"
    )
