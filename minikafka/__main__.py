"""The entry point of `python -m minikafka` and of the console script `minikafka`.

During imports, and after the command has finished, Ctrl-C ends the process without a traceback.
"""

from __future__ import annotations

import gc
import signal

# The imports of a broker create 110,000 objects that stay. Garbage collections at Python's default threshold would
# free nothing, but take a tenth of the time.
gc.set_threshold(200_000)


def _die_by_interrupts() -> None:
    """Let SIGINT end the process. If SIGINT is ignored, as in a background job of a script, leave it ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


# This call must precede the first slow import. Later `tools.cli.execution` makes Ctrl-C raise KeyboardInterrupt again.
_die_by_interrupts()

from minikafka.tools.cli.lazy import import_lazily  # noqa: E402

import_lazily()

from minikafka.tools.cli.main import main  # noqa: E402


def run() -> None:
    """Run the command that `sys.argv` names, then exit the process."""
    try:
        main()
    finally:
        _die_by_interrupts()
        gc.freeze()  # otherwise Python examines every imported object once more before the process ends


if __name__ == "__main__":
    run()
