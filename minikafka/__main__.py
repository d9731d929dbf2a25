"""`python -m minikafka`, and where the console script `minikafka` begins and ends.

Before the command can be interrupted, and after it, Ctrl-C just ends the process, without a traceback.
"""

from __future__ import annotations

import signal


def _die_by_interrupts() -> None:
    """Unless they are ignored, as in the background of a script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


_die_by_interrupts()  # before the first import that takes time; `cli.main` takes it back

from minikafka.cli.main import main  # noqa: E402


def run() -> None:
    """The command that the arguments name; ends the process."""
    try:
        main()
    finally:
        _die_by_interrupts()


if __name__ == "__main__":
    run()
