"""The log levels of this process, as Kafka's resource BROKER_LOGGER has them (KIP-412).

A logger is named as in the broker's log; the root logger is `root`. A package such as `minikafka.broker` is a logger
too: its level counts for each of its modules that has no level of its own. A restart restores all levels.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""Kafka's name of each level → Python's number, from the level with the fewest records to the level with the most."""


def log_levels() -> dict[str, str]:
    """Return the level in effect of every logger, by name; the root logger comes first."""
    names = sorted(logging.root.manager.loggerDict)
    return {ROOT: _name(logging.root)} | {name: _name(logging.getLogger(name)) for name in names}


def has_logger(name: str) -> bool:
    """Return True if a logger or a package of loggers has this name."""
    return name == ROOT or name in logging.root.manager.loggerDict


def set_log_level(name: str, level: str | None) -> None:
    """Set the level of an existing logger to a key of `LEVELS`; None: to the level of the package around it."""
    logger = logging.root if name == ROOT else logging.getLogger(name)
    logger.setLevel(logging.NOTSET if level is None else LEVELS[level])


def _name(logger: logging.Logger) -> str:
    """Return Kafka's name of a logger's level: of the next lower number, if another program has set a level between."""
    number = logger.getEffectiveLevel()
    return next((name for name, least in LEVELS.items() if number >= least), "TRACE")
