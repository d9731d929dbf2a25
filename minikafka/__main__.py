"""The entry point of `python -m minikafka` and of the console script `minikafka`.

During imports, and after the command has finished, Ctrl-C ends the process without a traceback.
"""

from __future__ import annotations

import gc
import signal

# Imports leave no garbage: with Python's default threshold, collections slow down the imports by 10 %.
gc.set_threshold(50_000)


def _die_by_interrupts() -> None:
    """Let SIGINT end the process. If SIGINT is ignored, as in a background job of a script, leave it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


_die_by_interrupts()  # before the first slow import; `cli.execution.run` makes Ctrl-C an exception again

from minikafka.cli.main import main  # noqa: E402


def run() -> None:
    """Run the command that `sys.argv` names, then exit the process."""
    try:
        main()
    finally:
        _die_by_interrupts()


if __name__ == "__main__":
    run()
