"""Creates the virtual environment .venv from requirements.lock, then executes the given script.

    scripts/environment [SCRIPT [ARGUMENTS…]]

This module uses only the standard library. Invariant: the stamp in .venv is written last. An interrupted
creation is therefore repeated, and a complete environment is recognized by its stamp.

Ctrl-C never prints a traceback. The shell script `scripts/environment` passes its standard error as descriptor 3
and redirects descriptor 2 to /dev/null, so that an interrupted start of Python prints nothing. This module
executes SCRIPT with SIGINT blocked. SCRIPT unblocks SIGINT when it can handle the signal (`endings.py`).
"""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # Until `main` restores the handler, SIGINT kills the process: KeyboardInterrupt in an import can get lost.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import ctypes
import fcntl
import hashlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "minikafka.stamp"
LOCK = ROOT / "requirements.lock"
PROGRESS_SECONDS = 5.0
"""Seconds between two progress lines, if the output is not a terminal."""
_PROGRESS_LINE = re.compile(
    rb"\s*(Collecting|Downloading|Building wheel for|Installing collected) ?(\S*)"
)
_PR_SET_PDEATHSIG = 1
_LENT_STDERR = 3


class Progress:
    """The progress line. On a terminal the line is rewritten, otherwise a new line is printed at intervals."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._printed = 0.0
        self._rewrites = sys.stderr.isatty()

    def show(self, text: str, *, is_last: bool = False) -> None:
        """Print the current activity with the seconds since the start."""
        now = time.monotonic()
        if not (self._rewrites or is_last or now - self._printed >= PROGRESS_SECONDS):
            return
        self._printed = now
        start, end = ("\r\033[K", "\n" if is_last else "") if self._rewrites else ("", "\n")
        line = f"environment  {text}  {now - self._started:.0f} s"
        print(f"{start}{line}", end=end, file=sys.stderr, flush=True)


def main(arguments: Sequence[str]) -> NoReturn:
    """Create the environment if .venv is missing or outdated, then execute the script in this process."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        os.dup2(_LENT_STDERR, sys.stderr.fileno())
        os.close(_LENT_STDERR)
        with LOCK.open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not _is_complete():
                make()
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.exit(130)
    except (OSError, RuntimeError) as error:
        sys.exit(f"environment: {error}")
    if not arguments:
        sys.exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.execv(PYTHON, [str(PYTHON), *arguments])


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def _stamp() -> str:
    """Return a text that identifies all inputs of the environment.

    If an input changes, the text changes, and the environment is recreated.
    """
    digest = hashlib.sha256()
    for file in (LOCK, ROOT / "pyproject.toml"):
        digest.update(file.read_bytes())
    return f"{digest.hexdigest()}\n{ROOT}\n{sys.version}\n"


def _is_complete() -> bool:
    return STAMP.exists() and PYTHON.exists() and STAMP.read_text() == _stamp()


def make() -> None:
    """Create .venv, and install all packages in the lock file and the project. Raises RuntimeError."""
    progress = Progress()
    progress.show("making .venv")
    _run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], progress)
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    _run([*pip, "--require-hashes", "-r", str(LOCK)], progress)
    project = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    _run([*pip, *project], progress)
    STAMP.write_text(_stamp())
    progress.show("ready in .venv", is_last=True)


def _run(command: Sequence[str], progress: Progress) -> None:
    """Run a command and show its progress. If this process ends, the command is killed.

    If the command fails, raises RuntimeError with the last line of its output.
    """
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - there is one thread
    )
    assert child.stdout is not None
    last = b""
    try:
        for line in child.stdout:
            last = line.strip() or last
            if shown := _PROGRESS_LINE.match(line):
                progress.show(b" ".join(shown.groups()).decode(errors="replace"))
        if child.wait() != 0:
            raise RuntimeError(f"{' '.join(command[:4])} … failed: {last.decode(errors='replace')}")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
