"""The log of a server of a Kafka distribution, as its log4j file says."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator

import pytest

from minikafka.tools.cli.kafka_home.log4j import set_up_log
from minikafka.tools.cli.kafka_home.server_lines import KafkaLog

FILE = """
log4j.rootLogger={level}, out, file, mail
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.Target=System.err
log4j.appender.file=org.apache.log4j.DailyRollingFileAppender
log4j.appender.file.File=${{kafka.logs.dir}}/new/server.log
log4j.appender.mail=org.apache.log4j.net.SMTPAppender
"""


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    """The root logger without handlers. Those that a test adds are closed at its end.

    The tests silence the loggers of kafka-python, which have the names of Kafka's own.
    """
    found, client = logging.getLogger(), logging.getLogger("kafka")
    silent = client.level
    client.setLevel(logging.NOTSET)
    before, level = found.handlers[:], found.level
    found.handlers[:] = []
    yield found
    for handler in found.handlers:
        handler.close()
    found.handlers[:] = before
    found.setLevel(level)
    client.setLevel(silent)


def configured(tmp_path, level="INFO") -> dict[str, str]:
    file = tmp_path / "log4j.properties"
    file.write_text(FILE.format(level=level))
    return {"log4j.configuration": f"file:{file}", "kafka.logs.dir": str(tmp_path / "logs")}


def test_log_goes_to_the_appenders_of_the_root_logger(tmp_path, capsys):
    set_up_log(configured(tmp_path))
    logging.getLogger("kafka.x").warning("full\ndisk")
    line = r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] WARN full\\ndisk \(kafka\.x\)\n"
    written = (tmp_path / "logs/new/server.log").read_text()
    printed = capsys.readouterr()
    assert re.fullmatch(line, written)
    assert (printed.out, printed.err) == ("", written)


def test_log_leaves_out_what_is_below_the_level_of_the_root_logger(tmp_path, capsys):
    set_up_log(configured(tmp_path, "ERROR"))
    logging.getLogger("kafka.x").warning("not shown")
    assert capsys.readouterr().err == ""


def test_log_goes_to_standard_output_without_a_readable_file(tmp_path, capsys):
    set_up_log({"log4j.configuration": f"file:{tmp_path}/none"})
    logging.getLogger("kafka.x").info("shown")
    printed = capsys.readouterr()
    assert "INFO shown (kafka.x)" in printed.out
    assert "cannot be read" in printed.err


def test_log_of_broker_has_the_lines_that_harnesses_wait_for(capsys):
    log = KafkaLog({})
    log.name_broker(7)
    log.serves("broker 7 serves", ["alice"])
    log.stopped("broker 7 has stopped")
    out = capsys.readouterr().out
    assert "[KafkaServer id=7] started (kafka.server.KafkaServer)" in out
    assert re.search(r"Kafka version: 3\.9\.\d+ ", out)
    assert "Removing Produce quota for user alice" in out
    assert "[KafkaServer id=7] shut down completed (kafka.server.KafkaServer)" in out
