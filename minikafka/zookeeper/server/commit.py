"""Group commit: replies and events wait until every transaction that was applied before them is durable.

Requests are applied as they arrive. One batch at a time is made durable: the transactions so far are written and
flushed, and then the output of all connections so far is sent. What arrives meanwhile forms the next batch.
Invariants: nothing is sent while an earlier transaction is not durable; after a failed write or flush, nothing is
sent any more. A flush runs in the event loop as long as the disk is fast, because a thread would double the time of
a lone write; with a slow disk, and while a snapshot is written, it runs in the Executor, so that the loop goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from minikafka.base.ports import Clock, Executor, Rng, Tasks
from minikafka.zookeeper.server.core.changes import LoggedTransaction
from minikafka.zookeeper.server.core.state import ServerState
from minikafka.zookeeper.server.counters import Counters, ReplyBatch

SLOW_MS: Final = 2
"""After a flush that takes longer, flushes run in the Executor."""
FAST_FLUSHES: Final = 64
"""After this many fast flushes in a row, flushes run in the event loop again."""


class CommitStore(Protocol):
    """The files of a server (`zookeeper/server/store/`). Each method may raise MinikafkaError."""

    notes: list[str]
    transactions_since_roll: int

    def recover(self, state: ServerState) -> None:
        """Read the state."""

    def secret(self, rng: Rng) -> bytes:
        """Return the secret of the session passwords."""

    def append(self, transactions: Sequence[LoggedTransaction]) -> None:
        """Write the transactions to the log, not yet durable."""

    def sync(self) -> None:
        """Make all appended transactions durable; may run in a thread."""

    def roll(self) -> None:
        """Let the next append begin a new file."""

    def write_snapshot(self, state: ServerState) -> None:
        """Write a snapshot; may run in a child process."""

    def purge(self) -> None:
        """Delete files that no recovery needs; may run in a thread."""

    def close(self) -> None:
        """Close the files, and let another process use them."""


class ReplySender(Protocol):
    """A connection that has output."""

    def take_output(self) -> ReplyBatch:
        """Return the collected output, and begin to collect the next."""

    def send_output(self, output: ReplyBatch) -> None:
        """Send what `take_output` returned."""


class GroupCommit:
    """The commits of a server. `store` None: transactions are not stored, and output is sent at once.

    `on_durable` is called after each batch. `fail(reason)` must end the process. `expects_slow_disk`: if true, no flush
    runs in the event loop.
    """

    def __init__(
        self,
        store: CommitStore | None,
        state: ServerState,
        clock: Clock,
        tasks: Tasks,
        executor: Executor,
        counters: Counters,
        on_durable: Callable[[], None],
        fail: Callable[[str], None],
    ) -> None:
        self._store = store
        self._state = state
        self._clock = clock
        self._tasks = tasks
        self._executor = executor
        self._counters = counters
        self._on_durable = on_durable
        self._fail = fail
        self.expects_slow_disk = False
        self._waiting: dict[ReplySender, None] = {}
        """The connections with output."""
        self._batch: list[tuple[ReplySender, ReplyBatch]] = []
        """The output that is sent when the current flush has succeeded."""
        self._is_in_turn = False
        self._is_scheduled = False
        self._is_flushing = False
        self._has_failed = False
        self._fast_flushes = FAST_FLUSHES
        self._idle: asyncio.Event | None = None

    def begin_turn(self) -> None:
        """Begin to apply requests; the caller must call `end_turn` before it returns to the loop."""
        self._is_in_turn = True

    def add(self, sender: ReplySender) -> None:
        """Note that a connection has output. Outside of a turn, a turn ends soon."""
        if not self._is_in_turn and not self._waiting:
            asyncio.get_running_loop().call_soon(self.end_turn)
        self._waiting[sender] = None

    def end_turn(self) -> None:
        """Send the collected output if there is nothing to log; otherwise commit in the next iteration of the loop."""
        self._is_in_turn = False
        if self._is_scheduled or self._is_flushing or self._has_failed:
            return
        if not self._state.journal:
            self._send(self._take())
            return
        # In the next iteration: the requests of all connections that are readable now share one flush.
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self.commit)

    def commit(self) -> None:
        """Write and flush all applied transactions, then send the output that was collected before."""
        self._is_scheduled = False
        if self._has_failed or self._is_flushing:
            return
        # No request is applied between the two lines: the batch has no reply to a transaction that is not written.
        batch = self._take()
        if not self.append():
            return
        if self.expects_slow_disk or self._fast_flushes < FAST_FLUSHES:
            assert not self._batch, "two batches are being flushed"
            self._is_flushing = True
            self._batch = batch
            self._tasks.spawn(self._flush_elsewhere(), "zookeeper log")
        elif self._flush():
            self._send(batch)
            self._on_durable()

    async def close(self) -> None:
        """Make all transactions durable and send all output."""
        while self._is_flushing and not self._has_failed:
            self._idle = asyncio.Event()
            await self._idle.wait()
        batch = self._take()
        if not self._has_failed and self.append() and self._flush():
            self._send(batch)

    def stop(self) -> None:
        """Send nothing from now on, because the server has failed."""
        self._has_failed = True
        self._waiting.clear()

    def _take(self) -> list[tuple[ReplySender, ReplyBatch]]:
        waiting, self._waiting = self._waiting, {}
        return [(sender, sender.take_output()) for sender in waiting]

    def append(self) -> bool:
        """Write all applied transactions to the log; return False on failure. No flush may be in progress."""
        journal = self._state.journal
        if not journal or self._store is None:
            return True
        self._state.journal = []
        try:
            self._store.append(journal)
        except Exception as error:  # noqa: BLE001 - any error ends the process
            self._end(error)
            return False
        return True

    def _flush(self) -> bool:
        """Flush the log in this thread; return False if that failed."""
        if self._store is None:
            return True
        began = self._clock.now()
        try:
            self._store.sync()
        except Exception as error:  # noqa: BLE001 - any error ends the process
            self._end(error)
            return False
        self._judge(self._clock.now() - began)
        return True

    async def _flush_elsewhere(self) -> None:
        try:
            took = await self._executor.run(self._timed_sync)
        except Exception as error:  # noqa: BLE001 - any error ends the process
            self._end(error)
        else:
            self._judge(took)
            batch, self._batch = self._batch, []
            self._is_flushing = False
            self._send(batch)
            self._on_durable()
            self.end_turn()
        if self._idle is not None:
            self._idle.set()

    def _timed_sync(self) -> int:
        assert self._store is not None
        began = self._clock.now()
        self._store.sync()
        return self._clock.now() - began

    def _judge(self, took_ms: int) -> None:
        self._counters.add_flush(took_ms)
        if took_ms > SLOW_MS:
            self._fast_flushes = 0
        elif self._fast_flushes < FAST_FLUSHES:
            self._fast_flushes += 1

    def _send(self, batch: list[tuple[ReplySender, ReplyBatch]]) -> None:
        if self._has_failed:
            return
        try:
            for sender, output in batch:
                sender.send_output(output)
        except Exception as error:  # noqa: BLE001 - the others would wait for their output for ever
            self.stop()
            self._fail(f"replies cannot be sent: {error!r}")

    def _end(self, error: Exception) -> None:
        self.stop()
        self._fail(f"the transaction log cannot be written: {error}")
