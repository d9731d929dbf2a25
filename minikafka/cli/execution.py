"""Running the asynchronous part of a command: interrupts, the client connection, and exit code 1.

asyncio and the client are imported only when a command runs, so that `--help` starts at once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from minikafka.client import Client

T = TypeVar("T")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end and return its result; Ctrl-C and SIGTERM cancel it.

    Until this call Ctrl-C ends the process: Python can lose a KeyboardInterrupt that is raised in an import.
    """
    import asyncio

    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, interrupt)
    return asyncio.run(work)


def run_with_client(work: Callable[[Client], Coroutine[Any, Any, T]], servers: str) -> T:
    """Connect a client to the brokers `servers`, run `work` with it, and return the result."""
    from minikafka.client import Client

    async def connected() -> T:
        async with Client(servers) as client:
            return await work(client)

    return run(connected())


def interrupt(*_: object) -> None:
    """Handle SIGTERM like Ctrl-C, even where SIGINT is ignored, as in a script's background job."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


def fail_unless(succeeded: bool) -> None:
    """End the command with exit code 1 unless it succeeded; print nothing."""
    if not succeeded:
        raise click.exceptions.Exit(1)
