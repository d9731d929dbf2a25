"""Ends a program without a traceback when the reader of its output has ended, as in `scripts/test --help | head -1`.

This module uses only the standard library, because `run_tests.py` runs before the environment exists.
"""

from __future__ import annotations

import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def ending_with_reader() -> Iterator[None]:
    """In the body, end the process by SIGPIPE when nobody reads its standard output any more."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_has_ended():  # the error is about a socket
            raise
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.raise_signal(signal.SIGPIPE)


def _reader_has_ended() -> bool:
    poller = select.poll()
    poller.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in poller.poll(0))
