"""The offsets that producers have committed in transactions that are still open (TxnOffsetCommit)."""

from __future__ import annotations

from minikafka.groups.state.offsets import GroupOffsets


class OpenTransactions:
    """The pending commits of the open transactions in one partition of `__consumer_offsets`, by producer.

    A commit is known by the offsets of its group and the commit's token there.
    """

    def __init__(self) -> None:
        self._commits: dict[int, list[tuple[GroupOffsets, int]]] = {}

    def add(self, producer_id: int, offsets: GroupOffsets, token: int) -> None:
        """Add a pending commit to the producer's transaction."""
        self._commits.setdefault(producer_id, []).append((offsets, token))

    def drop(self, producer_id: int, offsets: GroupOffsets, token: int) -> None:
        """Drop a pending commit whose records are not in the log. No effect if the transaction has ended."""
        commits = self._commits.get(producer_id, [])
        if (offsets, token) in commits:
            commits.remove((offsets, token))
            offsets.fail(token)

    def end(self, producer_id: int, committed: bool) -> None:
        """Complete the pending commits of the producer's transaction, or drop them if it was aborted."""
        for offsets, token in self._commits.pop(producer_id, ()):
            if committed:
                offsets.complete(token)
            else:
                offsets.fail(token)
