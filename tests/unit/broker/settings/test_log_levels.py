"""The levels of loggers, under Kafka's names."""

from __future__ import annotations

import logging

import pytest

from minikafka.broker.settings.config_entries import (
    ROOT_LOGGER,
    has_logger,
    log_levels,
    set_log_level,
)

NAME = "minikafka.broker.settings.test_log_levels.of_this_test"


@pytest.mark.parametrize(
    ("level", "shown", "hidden"),
    [
        ("FATAL", logging.CRITICAL, logging.ERROR),
        ("ERROR", logging.ERROR, logging.WARNING),
        ("WARN", logging.WARNING, logging.INFO),
        ("INFO", logging.INFO, logging.DEBUG),
        ("DEBUG", logging.DEBUG, 5),
        ("TRACE", 5, 4),
    ],
)
def test_logger_writes_the_records_of_its_level(level: str, shown: int, hidden: int) -> None:
    logger = logging.getLogger(NAME)
    set_log_level(NAME, level)
    assert logger.isEnabledFor(shown)
    assert not logger.isEnabledFor(hidden)
    assert log_levels()[NAME] == level


def test_logger_without_a_level_has_the_level_of_its_package() -> None:
    package = NAME.rpartition(".")[0]
    logging.getLogger(NAME)
    assert has_logger(package)
    set_log_level(NAME, None)
    set_log_level(package, "FATAL")
    assert log_levels()[NAME] == "FATAL"


def test_level_between_two_names_is_shown_as_the_lower() -> None:
    logging.getLogger(NAME).setLevel(logging.WARNING - 1)
    assert log_levels()[NAME] == "INFO"
    logging.getLogger(NAME).setLevel(1)
    assert log_levels()[NAME] == "TRACE"


def test_unknown_logger_is_not_created() -> None:
    assert not has_logger("no.such.logger")
    assert "no.such.logger" not in log_levels()
    assert has_logger(ROOT_LOGGER)
