"""Creates the virtual environment .venv from the files in `requirements/`, then executes the given script.

    scripts/environment [--needs nothing|base|spark|unit|tests] [SCRIPT [ARGUMENTS…]]

The environment has three parts, with one file in `requirements/` each. A part is installed when the first script that
needs it starts. A script that needs nothing is executed by the interpreter that executes this module.

This module uses only the standard library. Invariant: the stamp in .venv is written after a part is installed. It
names the installed parts. An interrupted installation is therefore repeated.

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
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv"
PYTHON = ENVIRONMENT / "bin" / "python"
STAMP = ENVIRONMENT / "minikafka.stamp"
PARTS = ("base", "spark", "tests")
"""Each part has a file in `requirements/` that pins its packages."""
NEEDS: dict[str, tuple[str, ...]] = {
    "nothing": (),
    "base": ("base",),
    "spark": ("base", "spark"),
    "unit": ("base", "tests"),
    "tests": PARTS,
}
"""The values of --needs, with the parts that they stand for."""
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

    `arguments`: a value of --needs, then the script and its arguments.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        os.dup2(_LENT_STDERR, sys.stderr.fileno())
        os.close(_LENT_STDERR)
        needs, *command = arguments
        if needs not in NEEDS:
            raise RuntimeError(f"--needs must be one of {', '.join(NEEDS)}, not {needs!r}")
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
    python = str(PYTHON) if NEEDS[needs] else sys.executable
    os.execv(python, [python, *command])


def _interrupt(*_: object) -> NoReturn:
    raise KeyboardInterrupt


def stamp(parts: Collection[str]) -> str:
    """Return a text that identifies all inputs of the environment, and its parts.

    If an input changes, the text changes, and the environment is recreated.
    """
    digest = hashlib.sha256()
    for file in (*LOCKS, ROOT / "pyproject.toml"):
        digest.update(file.read_bytes())
    return f"{digest.hexdigest()}\n{ROOT}\n{sys.version}\n{' '.join(sorted(parts))}\n"


def make(needs: str) -> None:
    """Install the parts that `needs` stands for and .venv lacks. Raises RuntimeError."""
    wanted = set(NEEDS[needs])
    if not wanted:
        return
    installed = _installed_parts()
    if wanted <= installed:
        return
    progress = Progress()
    if not installed:
        _create(progress)
    wanted |= installed
    locks = [
        argument
        for part, lock in zip(PARTS, LOCKS, strict=True)
        if part in wanted
        for argument in ("-r", str(lock))
    ]
    pip = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--no-compile"]
    _run([*pip, "--require-hashes", *locks], progress)
    if not installed:
        project = ["--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
        _run([*pip, *project], progress)
    STAMP.write_text(stamp(wanted))
    progress.show("ready in .venv", is_last=True)


def _installed_parts() -> set[str]:
    """Return the complete parts in .venv; none if .venv is missing or outdated."""
    if not (STAMP.exists() and PYTHON.exists()):
        return set()
    found = STAMP.read_text()
    return next((set(parts) for parts in NEEDS.values() if found == stamp(parts)), set())


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
