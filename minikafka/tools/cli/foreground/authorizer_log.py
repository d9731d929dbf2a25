"""The log of the authorizer's verdicts: a file of its own, as Kafka has it."""

from __future__ import annotations

from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from minikafka.base.config import BrokerConfig
from minikafka.broker.clients.access import audit
from minikafka.broker.ledger.writer import directory_of
from minikafka.tools.cli.processes.log_lines import LINE, LineFormatter

NAME: Final = "kafka-authorizer.log"
"""Kafka's name of the file."""
FILE_BYTES: Final = 64 << 20
FILES: Final = 10
"""Number of full files that are kept."""


def log_verdicts(config: BrokerConfig) -> None:
    """Write the verdicts into the directory of the ledger, and no longer into the broker's log.

    The file is made with the first line. A full file is renamed to `NAME.1`, that one to `NAME.2`, and so on.
    """
    handler = RotatingFileHandler(
        Path(directory_of(config.log_dirs[0])) / NAME,
        maxBytes=FILE_BYTES,
        backupCount=FILES,
        encoding="utf-8",
        delay=True,
    )
    handler.setFormatter(LineFormatter(LINE))
    audit.addHandler(handler)
    audit.propagate = False
