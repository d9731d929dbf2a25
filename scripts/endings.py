"""Exit codes of the programs in this folder: 0 for a good verdict, 1 for a bad verdict or an error.

The exit code is 130 after Ctrl-C. Invariant: Ctrl-C and SIGTERM end a program without a traceback at any moment.
`environment.py` starts the program with SIGINT blocked, and `run` unblocks SIGINT when the program can handle it.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from closed_pipe import ending_with_reader
from confluent_kafka import KafkaException

from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.execution.running import interrupt

INTERRUPTED = 130


def run(name: str, job: Callable[[], bool]) -> NoReturn:
    """Run the job and exit. SIGTERM acts like Ctrl-C. An expected error is printed as one line."""
    signal.signal(signal.SIGTERM, interrupt)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        with ending_with_reader():
            code = 0 if job() else 1
    except KeyboardInterrupt:
        code = INTERRUPTED
    except (KafkaException, MinikafkaError, OSError, RuntimeError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        code = 1
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a second Ctrl-C ends the process without waiting
    sys.exit(code)
