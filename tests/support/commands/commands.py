"""Functions that run minikafka's commands as processes."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import NamedTuple

import minikafka

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(minikafka.__file__).parents[1])}


class Ended(NamedTuple):
    """Exit code and output of a command that has ended."""

    code: int | None
    out: str
    err: str


async def call(*arguments: str) -> Ended:
    """Run `minikafka ARGUMENTS` until it ends."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "minikafka",
        *arguments,
        env=ENVIRONMENT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(120):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return Ended(process.returncode, out.decode(), err.decode())
