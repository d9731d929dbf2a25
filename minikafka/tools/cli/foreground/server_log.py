"""The log of a broker or a ZooKeeper server on standard output: lines of text, or lines of JSON."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Final

import click

from minikafka.base.errors import MinikafkaError
from minikafka.tools.cli.processes.log_lines import LINE, JsonFormatter, LineFormatter

logger = logging.getLogger(__name__)

TEXT: Final = "text"
JSON: Final = "json"
log_format_option = click.option(
    "--log-format",
    type=click.Choice((TEXT, JSON)),
    default=TEXT,
    show_default=True,
    help="Format of the log on standard output.",
)


class ServerLog:
    """Writes log records from level INFO on to standard output, from its creation on."""

    def __init__(self, log_format: str) -> None:
        self._json = JsonFormatter() if log_format == JSON else None
        handler = logging.StreamHandler(sys.stdout)
        handler.setFormatter(self._json or LineFormatter(LINE))
        logging.basicConfig(level=logging.INFO, handlers=[handler])
        if self._json is not None:
            sys.excepthook = _log_uncaught

    def name_broker(self, broker_id: int) -> None:
        """Add the broker's id to each following line of JSON."""
        if self._json is not None:
            self._json.broker_id = broker_id

    def serves(self, text: str, users: Iterable[str] = ()) -> None:
        """Write that the server serves. `users`: those who can log in to a broker with SCRAM."""
        self._announce(text)

    def stopped(self, text: str) -> None:
        """Write that the server has stopped."""
        self._announce(text)

    def _announce(self, text: str) -> None:
        """Write a line without time and level, which `minikafka up` and people wait for; with JSON, a record."""
        if self._json is None:
            print(text, flush=True)
        else:
            logger.info("%s", text)

    @contextmanager
    def end_of_process(self) -> Iterator[None]:
        """With JSON, log the error with which the `with` block ends. Every command prints it on standard error."""
        try:
            yield
        except (MinikafkaError, OSError) as error:
            if self._json is not None:
                logger.error("%s", error)
            raise


def _log_uncaught(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    logger.critical("the process has crashed", exc_info=(kind, error, trace))
