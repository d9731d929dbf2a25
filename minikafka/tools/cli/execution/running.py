"""Running the asynchronous part of a command: interrupts, the client connection, and exit code 1.

asyncio and the client are imported only when a command runs, so that `--help` starts at once.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click

import minikafka.client as clients
from minikafka.base.errors import ConfigError, ErrorCode, KafkaError, MinikafkaError
from minikafka.runtime.tasks import TaskRegistry
from minikafka.tools.cli.arguments.command_config import connector
from minikafka.tools.cli.arguments.find_cluster import bootstrap_servers
from minikafka.tools.cli.arguments.options import named_cluster, time_limit
from minikafka.tools.cli.execution.waiting import (
    WORK_MS,
    ClientWaits,
    CommandWatch,
    Reason,
    local_cluster,
    tell_causes,
)
from minikafka.tools.cli.terminal.topic_errors import (
    VALID,
    UnknownTopics,
    did_you_mean,
    similar_topics,
)

T = TypeVar("T")


def run(
    work: Coroutine[Any, Any, T],
    *,
    limit: float | None = None,
    late: str = "not finished",
    reason: Reason | None = None,
) -> T:
    """Run a coroutine to its end and return its result; Ctrl-C and SIGTERM cancel it.

    `limit`: maximum time in seconds (default: the value of `--timeout`). After this time, MinikafkaError is
    raised. `late`: the first words of the error's text. `reason`: returns what the work waits for; the text is printed
    when the work has lasted for more than a second. Until this call, Ctrl-C kills the process by SIGINT's default
    action, because Python can lose a KeyboardInterrupt that is raised during an import.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    waiting = CommandWatch(reason, WORK_MS) if reason is not None else None
    explained = _explaining(work, ClientWaits(None))
    return run_cancellable(_within(limit or time_limit(), explained, late, waiting))


def run_cancellable(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end; Ctrl-C and SIGTERM cancel it. SIGTERM works even if SIGINT is ignored.

    The event loop runs until the coroutine has cleaned up. Then KeyboardInterrupt is raised, unless the coroutine
    had already ended. A second signal raises KeyboardInterrupt immediately.
    """
    interrupts = _Interrupts()
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGTERM, interrupts.handle)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupts.handle)
    try:
        return asyncio.run(interrupts.cancelling(work))
    except asyncio.CancelledError:
        if interrupts.signalled:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGTERM, interrupt)
        signal.signal(signal.SIGINT, before)


class _Interrupts:
    """Cancels a task after the first signal.

    The event loop calls `cancel` between two callbacks. asyncio's own handler calls it in the middle of a callback,
    which can then find its future cancelled after it has checked the future (InvalidStateError).
    """

    def __init__(self) -> None:
        self.signalled = False
        self._task: asyncio.Task[Any] | None = None

    def handle(self, *_: object) -> None:
        """Handle a signal. Raises KeyboardInterrupt for a second signal, and if the task has ended."""
        if self.signalled or (self._task is not None and self._task.done()):
            raise KeyboardInterrupt
        self.signalled = True
        if self._task is not None:
            self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def cancelling(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the current task. If a signal came before, `work` is cancelled at its first await."""
        self._task = asyncio.current_task()
        with _waking_signals():
            if self.signalled and self._task is not None:
                self._task.cancel()
            return await work


@contextmanager
def _waking_signals() -> Iterator[None]:
    """Let every signal wake the running event loop, so that Python runs the signal's handler.

    Otherwise the handler waits for the next event if the signal comes just before the loop waits, or if another thread
    receives it.
    """
    loop = asyncio.get_running_loop()
    reading, writing = socket.socketpair()
    with reading, writing:
        reading.setblocking(False)
        writing.setblocking(False)
        loop.add_reader(reading, reading.recv, 4_096)
        before = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            loop.remove_reader(reading)


async def _within(
    limit: float | None, work: Coroutine[Any, Any, T], late: str, waiting: CommandWatch | None
) -> T:
    timer, watch = asyncio.timeout(limit), TaskRegistry()
    if waiting is not None:
        watch.spawn(waiting.tell(), "waiting")
    try:
        async with timer:
            return await work
    except TimeoutError:
        if not timer.expired():
            raise
        error = MinikafkaError(f"{late} within {limit:g} s (--timeout)")
        error.hint = f"it waited for {waiting.last}" if waiting and waiting.last else ""
        raise error from None
    finally:
        await watch.close()


async def _explaining(work: Coroutine[Any, Any, T], waits: ClientWaits) -> T:
    """Run a coroutine, and add a hint to its error.

    The hint is the causes if the error comes from the condition of the cluster, and similar names for an unknown topic.
    """
    try:
        return await work
    except KafkaError as error:
        if error.hint or not error.code.retriable:
            raise
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            error.hint = await waits.causes(None, error)
        elif waits.client is not None:
            error.hint = await similar_topics(waits.client.admin, _unknown(error))
        elif (local := local_cluster(None)[0]) is not None:
            error.hint = did_you_mean(_unknown(error), local.directory.topics())
        raise


def _unknown(error: KafkaError) -> Sequence[str]:
    """Return the names of the unknown topics of an error UNKNOWN_TOPIC_OR_PARTITION; [] if it concerns a partition."""
    if isinstance(error, UnknownTopics):
        return error.names
    name = error.detail.removesuffix(" does not exist")
    return [name] if VALID.fullmatch(name) else []


def run_with_client(
    work: Callable[[clients.Client], Coroutine[Any, Any, T]],
    servers: str | None = None,
    *,
    limit: float | None = None,
    late: str | None = None,
    read_committed: bool = False,
) -> T:
    """Connect a client to the brokers `servers`, run `work` with it, and return the result.

    `servers`: by default those that the options of `client_options` name. `limit`: maximum time in seconds (default:
    the value of `--timeout`), which also replaces the client's own time limits. After this time, MinikafkaError is
    raised. `late`: the first words of the error's text. `read_committed`: the client reads only committed records.
    Raises UsageError if `servers` is malformed.
    """
    limit = limit or time_limit()
    servers = servers or bootstrap_servers(*named_cluster())
    waits = ClientWaits(servers)

    options: dict[str, Any] = {"read_committed": True} if read_committed else {}
    if (made := connector()) is not None:
        options["connector"] = made
    if limit is not None:
        limit_ms = max(1, round(limit * 1000))
        options |= {"api_timeout_ms": limit_ms, "delivery_timeout_ms": limit_ms}

    async def connected() -> T:
        try:
            client = clients.Client(servers, **options)
        except ConfigError as error:  # an address that is not host:port
            raise click.UsageError(str(error)) from error
        async with client as waits.client:
            return await _explaining(work(waits.client), waits)

    late = late or f"no complete answer from {servers}"
    return run_cancellable(_within(limit, connected(), late, CommandWatch(waits.reason)))


def interrupt(*_: object) -> None:
    """Handle SIGTERM like Ctrl-C, even if SIGINT is ignored (as in a background job of a script)."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def fail_unless(succeeded: bool) -> None:
    """End the command with exit code 1 if `succeeded` is false; print nothing."""
    if not succeeded:
        raise click.exceptions.Exit(1)


def tell_causes_of(outcomes: Iterable[clients.Outcome]) -> None:
    """If an outcome is an error, print the problems of the cluster that may have caused it, on standard error."""
    codes = [outcome.code for outcome in outcomes if not outcome.ok]
    if codes:
        run_cancellable(tell_causes(codes))
