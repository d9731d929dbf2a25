"""Blocking calls of the asynchronous programs in this folder."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def in_thread(function: Callable[..., T], *arguments: object) -> T:
    """Run a blocking function in a thread and return its result. A cancelled caller does not wait for the function.

    The thread ends with the process at the latest. With `asyncio.to_thread`, an interrupted program would end only
    when the function returns, and until then its clients would send requests to the brokers' ports.
    """
    result: Future[T] = Future()
    result.set_running_or_notify_cancel()

    def run() -> None:
        try:
            result.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            result.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return await asyncio.wrap_future(result)
