"""The formats of a broker's log: one line for each record, which no text from outside can break or forge."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
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


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON in ASCII, with the time in UTC.

    `broker_id`: the value of the field `broker`; None in a process that is no broker.
    """

    def __init__(self) -> None:
        super().__init__()
        self.broker_id: int | None = None

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record. Only a record of an exception has the field `exception`."""
        at = datetime.fromtimestamp(record.created, UTC)
        fields: dict[str, object] = {
            "time": at.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self.broker_id is not None:
            fields["broker"] = self.broker_id
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            fields["stack"] = record.stack_info
        return json.dumps(fields)


def escape_warnings() -> None:
    """Escape the log records that Python prints on standard error in a command without a log."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LineFormatter())
