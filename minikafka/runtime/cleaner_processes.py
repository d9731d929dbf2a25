"""The Cleaners port: each cleaning runs in its own process, so that the broker's event loop does not wait.

After a cleaning, the process stays idle for a while for the next cleaning. It exits when the broker exits.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import IO, Any, Final

from minikafka.base.errors import CleaningFailed, StorageFailed

_WORKER: Final = "minikafka.runtime.cleaner_worker"
_LINE_MAX: Final = 16 << 20
_KEPT_S: Final = 60


class CleanerProcesses:
    """Processes that run `cleaner_worker.py`. Tasks and results are sent as lines of JSON."""

    def __init__(self) -> None:
        self._idle: list[Process] = []
        self._retiring: asyncio.TimerHandle | None = None
        self._throttle: IO[bytes] | None = None
        """The file shared by the `Throttle` of every process. It is opened when the first process starts."""

    async def clean(
        self, task: Mapping[str, Any], on_group: Callable[[Mapping[str, Any]], Awaitable[None]]
    ) -> Mapping[str, Any]:
        """Run a cleaning task in an idle process, or else in a new process (see `Cleaners.clean`)."""
        process = self._idle.pop() if self._idle else await self._started()
        is_idle = False
        try:
            kind, content = await _exchange(process, task, on_group)
            is_idle = True
        finally:
            if is_idle:
                self._keep(process)
            else:
                await _end(process)
        if kind == "storage":
            raise StorageFailed(content["path"], OSError(content["errno"], content["text"]))
        if kind == "failed":
            raise CleaningFailed(content["text"])
        return content

    async def _started(self) -> Process:
        try:
            if self._throttle is None:
                self._throttle = tempfile.TemporaryFile()  # noqa: SIM115  `close` closes it
            shared = self._throttle.fileno()
            command = (sys.executable, "-m", _WORKER, str(shared))
            return await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, limit=_LINE_MAX, pass_fds=(shared,)
            )
        except OSError as error:
            failure = StorageFailed("cleaner process", error)
            if failure.lacks_descriptors:
                raise failure from error
            raise CleaningFailed(f"the cleaner process cannot be started: {error}") from error

    def _keep(self, process: Process) -> None:
        self._idle.append(process)
        if self._retiring is not None:
            self._retiring.cancel()
        self._retiring = asyncio.get_running_loop().call_later(_KEPT_S, self._retire)

    def _retire(self) -> None:
        """End the idle processes, by closing their input."""
        while self._idle:
            process = self._idle.pop()
            assert process.stdin is not None
            process.stdin.close()

    async def close(self) -> None:
        """Kill the idle processes, and close the file that the processes' throttles share."""
        if self._retiring is not None:
            self._retiring.cancel()
        while self._idle:
            await _end(self._idle.pop())
        if self._throttle is not None:
            self._throttle.close()


async def _exchange(
    process: Process,
    task: Mapping[str, Any],
    on_group: Callable[[Mapping[str, Any]], Awaitable[None]],
) -> tuple[str, dict[str, Any]]:
    """Send a task to the process, and call `on_group` for each cleaned group of segments.

    Return the kind and the content of the process's last message. Raises CleaningFailed if the process ends.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(task).encode() + b"\n")
    while True:
        line = await process.stdout.readline()
        if not line:
            raise CleaningFailed(f"the cleaner process ended with exit code {await process.wait()}")
        kind, content = json.loads(line)
        if kind != "group":
            return kind, content
        await on_group(content)


async def _end(process: Process) -> None:
    assert process.stdin is not None
    if process.returncode is None:
        process.kill()
    await process.wait()
    process.stdin.close()
    with suppress(OSError):  # raised if the process had not read the whole task
        await process.stdin.wait_closed()
