"""The processes of copy jobs: started, killed, paused, and started again when they end by themselves."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

from minikafka.runtime.spawning import die_with

PROGRAM = Path(__file__).with_name("copy_job.py")
END_SECONDS = 60.0
"""Time limit for a job to end its transaction and leave its group."""
AGAIN_SECONDS = 0.5


class CopyProcess:
    """One job, of which at most one process runs. `ends`: how often its process ended by itself, by its last line or
    the signal that ended it.
    """

    def __init__(self, bootstrap: str, name: str, topics: tuple[str, str], directory: Path) -> None:
        self.name = name
        self.ends: Counter[str] = Counter()
        self._command = [sys.executable, str(PROGRAM), bootstrap, name, *topics, "copy"]
        self._command.append(str(directory))
        self._log = directory / f"{name}.log"
        self._process: asyncio.subprocess.Process | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the process, and start it again whenever it ends by itself."""
        await self._spawn()
        self._keeper = asyncio.create_task(self._keep())

    async def _spawn(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdout=log,
                stderr=log,
                preexec_fn=partial(die_with, os.getpid()),
            )

    async def _keep(self) -> None:
        while True:
            assert self._process is not None
            code = await self._process.wait()
            reason = signal.Signals(-code).name if code < 0 else self._last_line()
            self.ends[reason] += 1
            await asyncio.sleep(AGAIN_SECONDS)
            await self._spawn()

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines()
        return lines[-1] if lines else ""

    async def kill(self) -> None:
        """End the process with SIGKILL."""
        await self._leave(signal.SIGKILL)

    async def stop(self) -> None:
        """Let the job end its transaction and leave its group. Raises RuntimeError after `END_SECONDS`."""
        try:
            async with asyncio.timeout(END_SECONDS):
                await self._leave(signal.SIGTERM)
        except TimeoutError:
            text = f"{self.name} did not end within {END_SECONDS:g} s, see {self._log}"
            raise RuntimeError(text) from None

    async def _leave(self, number: signal.Signals) -> None:
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait([self._keeper])
            self._keeper = None
        self.signal(number)
        if self._process is not None:
            await self._process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, such as SIGSTOP and SIGCONT."""
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)


@asynccontextmanager
async def running(jobs: Sequence[CopyProcess]) -> AsyncIterator[None]:
    """Run the jobs during the `with` body, and kill those that still run at its end."""
    try:
        for job in jobs:
            await job.start()
        yield
    finally:
        for job in jobs:
            await job.kill()
