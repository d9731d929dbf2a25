"""The exit codes of `minikafka broker` and `minikafka zookeeper`, which tell a service manager whether to restart.

0: stopped by a signal, cleanly. 1: a failure that may pass, such as an unreachable ZooKeeper, a port or directory that
another process uses, a failed disk or a crash: a restart may help. 2: the command line, the configuration or the data
are wrong: a restart does not help. 130: a second signal ended the process before it had stopped cleanly. A signal
before the process serves ends it at once, as signals do.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from minikafka.base.errors import MinikafkaError

NO_RESTART: Final = 2
SECOND_SIGNAL: Final = 130


@contextmanager
def without_restart(*kinds: type[MinikafkaError]) -> Iterator[None]:
    """Let the command end with a code that prevents a restart if the `with` block raises one of these errors."""
    try:
        yield
    except kinds as error:
        error.exit_code = NO_RESTART
        raise


def end_by_signals_as_init() -> None:
    """Let SIGTERM, SIGINT and SIGHUP end the first process of a container before it serves.

    For that process, Linux ignores signals that have no handler.
    """
    if os.getpid() == 1:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, _end)


def _end(number: int, _: FrameType | None) -> None:
    os._exit(128 + number)
