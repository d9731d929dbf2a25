"""The ZooKeeper session of one controller term: it repeats reads after a reconnect, and fences writes.

Invariants: every write is a multi that begins with the check of `/controller_epoch` and is sent only in the session of
the term (R2, S15). It takes effect as a whole and before the next controller is elected, or not at all. After a write
without an answer, the nodes are read again before the next write; only deletions that ignore the node version are
repeated without a read.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from minikafka.base.errors import (
    BadVersion,
    ControllerMoved,
    CoordinationError,
    MultiFailed,
    NoNode,
    NotConnected,
    NotEmpty,
    OutcomeUnknown,
    ServerVerdict,
    StaleSession,
)
from minikafka.base.ports import Check, Delete, Ledger, MultiOp, Stat, Znode, ZooKeeper
from minikafka.broker.ledger.record import NOTHING, WRITE
from minikafka.broker.modes.controller.terms.lines import write_line
from minikafka.zookeeper.nodes import election, layout
from minikafka.zookeeper.nodes.faults import Faults

logger = logging.getLogger(__name__)

OPERATIONS_MAX: Final = 199
"""Maximum number of operations in one multi, not counting the check.

199 state nodes of about 100 bytes each are far below ZooKeeper's limit.
"""

Answer = TypeVar("Answer")
Item = TypeVar("Item")


class TermSession:
    """The ZooKeeper session of one controller term.

    `generation` is the number of the session. `epoch_version` is the version of `/controller_epoch` after the
    election that began the term.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        generation: int,
        epoch_version: int,
        ledger: Ledger = NOTHING,
        faults: Faults | None = None,
    ) -> None:
        self._zookeeper = zookeeper
        self.generation = generation
        self.cause = ""
        """Id of the event being handled, for the ledger."""
        self.faults = faults or Faults()
        """The malformed nodes that this term and earlier terms have skipped."""
        self._fence = election.fence(epoch_version)
        self._ledger = ledger

    # Reads.

    async def steady(self, call: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the result of `call`; repeat the call after each lost connection or lost answer.

        Raises StaleSession when the session has ended, and any ServerVerdict of `call`.
        """
        while True:
            try:
                return await call()
            except (NotConnected, OutcomeUnknown):
                await self.attached()

    async def attached(self) -> None:
        """Wait until the session is connected. Raises StaleSession when another session has replaced it."""
        if await self._zookeeper.connected() != self.generation:
            raise StaleSession(
                f"a new session has replaced the ZooKeeper session of generation {self.generation}"
            )

    async def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """Return data and Stat of each node, None for an absent node. Raises StaleSession."""
        return await self.steady(lambda: self._zookeeper.get_many(paths))

    # Writes.

    async def compare_and_set(
        self,
        operations: Callable[[], Awaitable[list[MultiOp]]],
        before_retry: Callable[[CoordinationError, MultiOp | None], Awaitable[None]],
    ) -> list[Stat | None]:
        """Write the operations that `operations()` returns, with retries; return their Stats.

        `operations()` reads the nodes that it depends on, and returns operations at the versions of these
        nodes. If it returns no operations, nothing is left to write, and the result is []. After a failed
        write, `before_retry(error, operation)` is called: it raises, or `operations()` is called again.
        If ZooKeeper refused `operation`, `error` is the reason. After a lost connection or answer, `error`
        is NotConnected or OutcomeUnknown, and `operation` is None. The session has then reconnected and
        synced.
        Raises ControllerMoved, StaleSession, TooLarge.
        """
        while wanted := await operations():
            try:
                return await self.write(wanted)
            except (NotConnected, OutcomeUnknown) as lost:
                await self.attached()
                await self.steady(lambda: self._zookeeper.sync(layout.CONTROLLER_EPOCH))
                await before_retry(lost, None)
            except MultiFailed as failed:
                await before_retry(failed.error, wanted[failed.index - 1])
        return []

    async def write(self, operations: Sequence[MultiOp]) -> list[Stat | None]:
        """Send one multi that begins with the check of the controller epoch; return the Stats of `operations`.

        Raises ControllerMoved if this check fails.
        """
        return await fenced_multi(
            self._zookeeper,
            self._ledger,
            self._fence,
            operations,
            generation=self.generation,
            cause=self.cause,
        )

    def note_found(self, operations: Sequence[MultiOp], stats: Sequence[Stat | None]) -> None:
        """Write the ledger line of operations whose answer was lost, after a read has shown that they succeeded."""
        if operations:
            fields = write_line(self._fence, operations, stats=stats)
            self._ledger.record(WRITE, self.cause, fields | {"read_back": True})

    # Deletions.

    async def delete_nodes(self, paths: Iterable[str]) -> None:
        """Delete the nodes, whatever their versions, and all nodes below them. Absent nodes are ignored."""
        for batch in batches(paths, OPERATIONS_MAX):
            await self._delete_batch(list(batch))

    async def _delete_batch(self, paths: list[str]) -> None:
        async def operations() -> list[MultiOp]:
            return [Delete(path, -1) for path in paths]

        async def before_retry(error: CoordinationError, refused: MultiOp | None) -> None:
            if refused is None:
                return
            if isinstance(error, NotEmpty):
                await self.delete_below([refused.path])
                return
            paths.remove(refused.path)
            if not isinstance(error, NoNode):
                logger.error("%s not deleted: %s", refused.path, error)

        await self.compare_and_set(operations, before_retry)

    async def delete_below(self, paths: Sequence[str]) -> None:
        """Delete all nodes below the nodes at `paths`, but not the nodes at `paths` themselves."""
        await self.delete_nodes(reversed(await self._nodes_below(paths)))

    async def _nodes_below(self, paths: Sequence[str]) -> list[str]:
        """Return the paths of all nodes below the nodes at `paths`, parents before children."""
        found: list[str] = []
        level = list(paths)
        while level:
            names = await self.steady(partial(self._zookeeper.children_many, level))
            level = [
                f"{parent}/{name}"
                for parent, children in zip(level, names, strict=True)
                for name in children or ()
            ]
            found += level
        return found


async def fenced_multi(
    zookeeper: ZooKeeper,
    ledger: Ledger,
    check: Check,
    operations: Sequence[MultiOp],
    *,
    generation: int | None = None,
    cause: str = "",
) -> list[Stat | None]:
    """Send `check` and `operations` in one multi; return the Stats of the operations.

    `check`: the check of the controller epoch. `cause`: id of the controller event that caused the write, for the
    ledger. Raises ControllerMoved if the check fails, CoordinationError.
    """
    assert operations, "a check alone writes nothing"
    try:
        stats = await zookeeper.multi([check, *operations], generation=generation)
    except CoordinationError as error:
        ledger.record(WRITE, cause, write_line(check, operations, error=error))
        if _is_fenced(error):
            raise ControllerMoved("another controller was elected") from error
        raise
    ledger.record(WRITE, cause, write_line(check, operations, stats=stats[1:]))
    return stats[1:]


def _is_fenced(error: CoordinationError) -> bool:
    """True if the multi failed because of its first operation, the check of the controller epoch."""
    return (
        isinstance(error, MultiFailed)
        and error.index == 0
        and isinstance(error.error, BadVersion | NoNode)
    )


def raise_unless(error: CoordinationError, *expected: type[ServerVerdict]) -> None:
    """Return if `error` has an expected type or means a lost connection or answer; otherwise raise `error`."""
    if not isinstance(error, (NotConnected, OutcomeUnknown, *expected)):
        raise error


def batches(items: Iterable[Item], size: int) -> Generator[list[Item], None, None]:
    """Yield the items in lists of at most `size`."""
    batch: list[Item] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
