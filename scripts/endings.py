"""How the programs of this folder end: 0 for a good verdict, 1 for a bad one or an error, 130 after Ctrl-C.

Invariant: Ctrl-C and SIGTERM end a program without a traceback at any moment. `environment.py` starts it
with SIGINT held back; here it is let through, where it is expected.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from typing import NoReturn

from confluent_kafka import KafkaException

from minikafka.base.errors import MinikafkaError
from minikafka.cli.execution import interrupt

INTERRUPTED = 130


def run(name: str, job: Callable[[], bool]) -> NoReturn:
    """Run it and end the process; SIGTERM is as Ctrl-C, and a foreseen failure is one line."""
    signal.signal(signal.SIGTERM, interrupt)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        code = 0 if job() else 1
    except KeyboardInterrupt:
        code = INTERRUPTED
    except (KafkaException, MinikafkaError, OSError, RuntimeError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        code = 1
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever cannot wait for the last threads
    sys.exit(code)
