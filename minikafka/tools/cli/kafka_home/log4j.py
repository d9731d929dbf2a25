"""The file `log4j.properties`: where a server of a Kafka distribution writes its log, and from which level on.

Of the file, the root logger and its appenders have an effect: the console, and files, which are not rotated. Every line
has Kafka's own layout, `[%d] %p %m (%c)%n`.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from minikafka.base.properties import decode_properties
from minikafka.tools.cli.processes.log_lines import LineFormatter

CONFIGURATION: Final = "log4j.configuration"
"""The system property that names the file."""
_LAYOUT: Final = "[%(asctime)s] %(levelname)s %(message)s (%(name)s)"
_LEVELS: Final = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 1,
}
_NAMES: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}
_VARIABLE: Final = re.compile(r"\$\{([^}]*)\}")


class KafkaFormatter(LineFormatter):
    """Formats a record as a line of Kafka's log."""

    def __init__(self) -> None:
        super().__init__(_LAYOUT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a method of logging
        """Return the line, with log4j's name of the level."""
        named = logging.makeLogRecord(record.__dict__)
        named.levelname = _NAMES.get(record.levelname, record.levelname)
        return super().formatMessage(named)


def set_up_log(properties: Mapping[str, str]) -> None:
    """Let the process log as the file says that the system properties name. Without a file: from INFO on, to stdout."""
    settings = _settings(properties)
    level, *names = [word.strip() for word in settings.get("log4j.rootLogger", "").split(",")]
    handlers = [made for name in names if (made := _handler(name, settings, properties))]
    formatter = KafkaFormatter()
    for handler in handlers or [logging.StreamHandler(sys.stdout)]:
        handler.setFormatter(formatter)
        logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(_LEVELS.get(level.upper(), logging.INFO))


def _settings(properties: Mapping[str, str]) -> dict[str, str]:
    file = properties.get(CONFIGURATION, "").removeprefix("file:")
    try:
        entries = decode_properties(Path(file).read_bytes()) if file else []
    except OSError as error:
        print(f"log4j: {file} cannot be read: {error.strerror}", file=sys.stderr)
        entries = []
    return {entry.name: entry.value.strip() for entry in entries}


def _handler(
    name: str, settings: Mapping[str, str], properties: Mapping[str, str]
) -> logging.Handler | None:
    """Return the handler of an appender; None if it is neither the console nor a file."""
    prefix = f"log4j.appender.{name}"
    kind = settings.get(prefix, "").rpartition(".")[2]
    if kind == "ConsoleAppender":
        is_error = settings.get(f"{prefix}.Target", "") == "System.err"
        return logging.StreamHandler(sys.stderr if is_error else sys.stdout)
    if not kind.endswith("FileAppender"):
        return None
    file = _VARIABLE.sub(lambda found: properties.get(found[1], ""), settings[f"{prefix}.File"])
    try:
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        return logging.FileHandler(file, encoding="utf-8")
    except OSError as error:
        print(f"log4j: {file} cannot be written: {error.strerror}", file=sys.stderr)
        return None
