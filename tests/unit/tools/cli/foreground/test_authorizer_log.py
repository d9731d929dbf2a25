"""The log of the authorizer's verdicts: its file, and what happens when it is full."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from logging.handlers import RotatingFileHandler
from pathlib import Path

import pytest

from minikafka.base.config import BrokerConfig
from minikafka.broker.clients.access import audit
from minikafka.tools.cli.foreground import authorizer_log
from minikafka.tools.cli.foreground.authorizer_log import NAME, log_verdicts


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """Yield the directory of the ledger, after the logger has got its file; reset the logger at the end."""
    ledger = tmp_path / "data-ledger"
    log_verdicts(BrokerConfig.from_mapping({"broker.id": 1, "log.dirs": f"{tmp_path}/data,/other"}))
    audit.setLevel(logging.INFO)
    assert not ledger.exists()
    ledger.mkdir()
    yield ledger
    for handler in [each for each in audit.handlers if isinstance(each, RotatingFileHandler)]:
        audit.removeHandler(handler)
        handler.close()
    audit.propagate = True
    audit.setLevel(logging.NOTSET)


def test_verdicts_are_lines_that_no_name_can_break(directory: Path) -> None:
    audit.info("Principal = %s is Denied", "User:x\nforged")
    audit.debug("Principal = User:y is Allowed")
    [line] = (directory / NAME).read_text().splitlines()
    assert line.endswith("INFO    kafka.authorizer.logger: Principal = User:x\\nforged is Denied")
    assert not audit.propagate


def test_full_file_is_renamed_and_the_oldest_one_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(authorizer_log, "FILE_BYTES", 100)
    monkeypatch.setattr(authorizer_log, "FILES", 2)
    directory = request.getfixturevalue("directory")
    for number in range(5):
        audit.info("verdict %d", number)
    found = {file.name: file.read_text().split()[-1] for file in directory.iterdir()}
    assert found == {NAME: "4", f"{NAME}.1": "3", f"{NAME}.2": "2"}
