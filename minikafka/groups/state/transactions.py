"""The offsets that producers have committed in transactions that are still open (TxnOffsetCommit)."""

from __future__ import annotations

from minikafka.base.open_transactions import OpenTransactions
from minikafka.groups.state.offsets import GroupOffsets


class PendingCommits:
    """The pending commits of the open transactions in one partition of `__consumer_offsets`, by producer.

    A commit is known by the offsets of its group and the commit's token there.
    """

    def __init__(self) -> None:
        self._commits: OpenTransactions[tuple[GroupOffsets, int]] = OpenTransactions()

    def add(self, producer_id: int, offsets: GroupOffsets, token: int) -> None:
        """Add a pending commit to the producer's transaction."""
        offsets.is_transactional = True
        self._commits.add(producer_id, (offsets, token))

    def drop(self, producer_id: int, offsets: GroupOffsets, token: int) -> None:
        """Drop a pending commit whose records are not in the log. No effect if the transaction has ended."""
        if self._commits.remove(producer_id, (offsets, token)):
            offsets.fail(token)

    def end(self, producer_id: int, committed: bool) -> None:
        """Complete the pending commits of the producer's transaction, or drop them if it was aborted."""
        for offsets, token in self._commits.end(producer_id):
            if committed:
                offsets.complete(token)
            else:
                offsets.fail(token)
