"""Creates the virtual environment .venv from the files in `requirements/`, then executes the given script.

    scripts/environment [--needs base|spark|tests] [SCRIPT [ARGUMENTS…]]

The environment has three parts. A part is installed when the first script that needs it starts. Each part includes
the parts before it.

This module uses only the standard library. Invariant: the stamp in .venv is written after a part is installed. It
names the last installed part. An interrupted installation is therefore repeated.

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
PARTS = ("base", "spark", "tests")
"""Each part has a file in `requirements/` that pins its packages."""
LOCKS = [ROOT / "requirements" / f"{part}.lock" for part in PARTS]
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
    """Install the parts that the script needs and .venv lacks, then execute the script in this process.

    `arguments`: the name of a part, then the script and its arguments.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        os.dup2(_LENT_STDERR, sys.stderr.fileno())
        os.close(_LENT_STDERR)
        needs, *command = arguments
        if needs not in PARTS:
            raise RuntimeError(f"--needs must be one of {', '.join(PARTS)}, not {needs!r}")
        with LOCKS[0].open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            make(needs)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        sys.exit(130)
    except (OSError, RuntimeError) as error:
        sys.exit(f"environment: {error}")
    if not command:
        sys.exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.execv(PYTHON, [str(PYTHON), *command])


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def stamp(part: str) -> str:
    """Return a text that identifies all inputs of the environment, and its last part.

    If an input changes, the text changes, and the environment is recreated.
    """
    digest = hashlib.sha256()
    for file in (*LOCKS, ROOT / "pyproject.toml"):
        digest.update(file.read_bytes())
    return f"{digest.hexdigest()}\n{ROOT}\n{sys.version}\n{part}\n"


def make(needs: str) -> None:
    """Install each part up to `needs` that .venv lacks. Raises RuntimeError."""
    wanted = PARTS.index(needs) + 1
    installed = _installed_parts()
    if installed >= wanted:
        return
    progress = Progress()
    if not installed:
        _create(progress)
    locks = [argument for lock in LOCKS[:wanted] for argument in ("-r", str(lock))]
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    _run([*pip, "--require-hashes", *locks], progress)
    if not installed:
        project = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
        _run([*pip, *project], progress)
    STAMP.write_text(stamp(needs))
    progress.show("ready in .venv", is_last=True)


def _installed_parts() -> int:
    """Return the number of complete parts in .venv; 0 if .venv is missing or outdated."""
    if not (STAMP.exists() and PYTHON.exists()):
        return 0
    found = STAMP.read_text()
    return next((count for count, part in enumerate(PARTS, 1) if found == stamp(part)), 0)


def _create(progress: Progress) -> None:
    progress.show("making .venv")
    _run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], progress)
    # No package needs setuptools, which Python 3.11 installs in each environment and which takes 10 MB.
    _run([str(PYTHON), "-m", "pip", "uninstall", "--yes", "setuptools"], progress)


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
