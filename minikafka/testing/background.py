"""An event loop in a thread of its own, in which the work of the test kit runs.

One client serves all tests of a process, but each asynchronous test may have its own event loop, and other tests have
none. So the client lives in this loop. A caller with an event loop gets a coroutine; any other caller waits.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, Final, TypeVar

from minikafka.base.errors import MinikafkaError
from minikafka.tools.cluster.blocking import finish

END_SECONDS: Final = 10
"""Maximum time for work to clean up after an interrupt."""

T = TypeVar("T")


class BackgroundLoop:
    """An event loop in a daemon thread. Any thread may call `run`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._serve, name="minikafka-kit", daemon=True).start()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop. Return its result; in a coroutine, return a coroutine that does this."""
        __tracebackhide__ = True
        return finish(work, self.awaited, self.wait)

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop, block until it ends, and return its result.

        If the caller is interrupted, the work is cancelled, and has cleaned up when this call ends.
        """
        __tracebackhide__ = True
        ended = threading.Event()
        future = self._submit(_then_set(work, ended))
        try:
            return future.result()
        except MinikafkaError as error:
            raise error.with_traceback(None) from None
        except BaseException:
            if future.cancel():
                ended.wait(END_SECONDS)
            raise

    def begin(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start `work` in the loop, and return without waiting for it."""
        return self._submit(work)

    def close(self) -> None:
        """End the loop and its thread. Work that still runs is dropped."""
        with suppress(RuntimeError):  # it is closed already
            self._loop.call_soon_threadsafe(self._loop.stop)

    async def awaited(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` in the loop, and return its result, without blocking the caller's loop."""
        __tracebackhide__ = True
        try:
            return await asyncio.wrap_future(self._submit(work))
        except MinikafkaError as error:
            raise error.with_traceback(None) from None

    def _submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


async def _then_set(work: Coroutine[Any, Any, T], ended: threading.Event) -> T:
    try:
        return await work
    finally:
        ended.set()
