"""The format of a broker's log: one line for each record, which no text from outside can break or forge."""

from __future__ import annotations

import logging
import sys
from typing import Final

from minikafka.base.printable import printable

LINE: Final = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
"""The form of a line of a log file."""
_INDENT: Final = "    "


class LineFormatter(logging.Formatter):
    """Formats a record as one line that begins with the time. The lines of a traceback follow, indented.

    Characters that are not printable are escaped, so every line that begins with a time was written by a logger.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, and the lines of its traceback and stack."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        below = []
        if record.exc_info:
            below += self.formatException(record.exc_info).split("\n")
        if record.stack_info:
            below += record.stack_info.split("\n")
        lines = [
            printable(self.formatMessage(record)),
            *(_INDENT + printable(row) for row in below),
        ]
        return "\n".join(lines)


def log_to_stderr() -> None:
    """Write log records from level INFO on to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(LINE))
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def escape_warnings() -> None:
    """Escape the log records that Python prints on standard error in a command without a log."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LineFormatter())
