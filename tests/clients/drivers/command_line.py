"""The program of the client matrix that performs one operation with a command line tool: kcat, or Kafka's own tools.

    command_line.py kcat|kafka-tools VERB …

The verbs are produce, stream, consume and attempt (`tests/support/clients/client_drivers.py`). These tools do not say
which record was acknowledged: `stream` prints {"sent": 5} for each record, and {"acked": 5} for all of them at its end.
MINIKAFKA_KAFKA_JARS names the directory with Kafka's jars.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, Final, Protocol

from python_logins import confluent

PAUSE_SECONDS: Final = 0.005
SECONDS: Final = 60
ATTEMPT_MS: Final = 10_000
LOGGING: Final = """\
log4j.rootLogger=WARN, err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%p %m%n
"""


def say(**fact: Any) -> None:
    """Write one line of JSON."""
    print(json.dumps(fact), flush=True)


class Tool(Protocol):
    """The commands of one tool."""

    def writer(self, bootstrap: str, topic: str, codec: str) -> list[str]:
        """Return the command that sends the lines of its standard input, each a key, `:` and a value."""

    def complaint(self, errors: str) -> str:
        """Return why some record was not sent, from the standard error of the writer; "" if there is no reason."""

    def reader(self, bootstrap: str, topic: str, group: str) -> list[str]:
        """Return the command that consumes as a group member until it is terminated."""

    def record(self, line: str) -> dict[str, Any]:
        """Return the record of a line of the reader."""

    def attempt(self, bootstrap: str, topic: str) -> dict[str, Any]:
        """Send one request; return `acked`, or the error's class, code and text."""


class Kcat:
    """kcat, of Debian's package."""

    def _command(self, bootstrap: str, *options: str) -> list[str]:
        properties = [f"{name}={value}" for name, value in confluent().items()]
        given = [word for one in properties for word in ("-X", one)]
        return ["kcat", "-b", bootstrap, *given, *options]

    def writer(self, bootstrap: str, topic: str, codec: str) -> list[str]:
        acks = ("-X", "acks=all", "-X", "enable.idempotence=true")
        return self._command(bootstrap, "-P", "-E", "-t", topic, "-K:", "-z", codec, *acks)

    def complaint(self, errors: str) -> str:
        return errors if "Delivery failed" in errors else ""

    def reader(self, bootstrap: str, topic: str, group: str) -> list[str]:
        earliest = ("-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=30000")
        return self._command(bootstrap, "-G", group, "-J", "-u", "-E", *earliest, topic)

    def record(self, line: str) -> dict[str, Any]:
        found = json.loads(line)
        names = ("partition", "offset")
        return {"value": int(found["payload"]), **{name: found[name] for name in names}}

    def attempt(self, bootstrap: str, topic: str) -> dict[str, Any]:
        command = self._command(
            bootstrap, "-P", "-t", topic, "-X", f"message.timeout.ms={ATTEMPT_MS}"
        )
        done = subprocess.run(
            command, input="0\n", capture_output=True, text=True, timeout=SECONDS, check=False
        )
        if done.returncode == 0:
            return {"acked": 0}
        [first, *_] = [line for line in done.stderr.splitlines() if "ERROR" in line]
        return {"error": "exit", "code": done.returncode, "text": first}


class KafkaTools:
    """The console producer and consumer, and kafka-topics with --command-config."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp())
        (self._directory / "log4j.properties").write_text(LOGGING)

    def _command(self, main: str, bootstrap: str, *options: str) -> list[str]:
        jars = os.environ["MINIKAFKA_KAFKA_JARS"]
        log4j = f"-Dlog4j.configuration=file:{self._directory}/log4j.properties"
        quick = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", log4j)
        to = ("--bootstrap-server", bootstrap)
        return ["java", *quick, "-cp", f"{jars}/*", main, *to, *options]

    def _login(self) -> str:
        name = os.environ.get("MATRIX_LOGIN")
        return f"{name}.properties" if name else os.devnull

    def writer(self, bootstrap: str, topic: str, codec: str) -> list[str]:
        keys = ("--property", "parse.key=true", "--property", "key.separator=:")
        # By default the tool gives a record up after three attempts, less than the time that an election takes.
        attempts = ("--message-send-max-retries", "1000", "--request-timeout-ms", "5000")
        options = (
            "--topic",
            topic,
            "--compression-codec",
            codec,
            "--request-required-acks",
            "all",
            *attempts,
        )
        config = ("--producer.config", self._login())
        return self._command("kafka.tools.ConsoleProducer", bootstrap, *options, *keys, *config)

    def complaint(self, errors: str) -> str:
        return errors if re.search(r"(?m)^ERROR", errors) else ""

    def reader(self, bootstrap: str, topic: str, group: str) -> list[str]:
        shown = [f"print.{name}=true" for name in ("partition", "offset")]
        properties = [word for one in shown for word in ("--property", one)]
        options = ("--topic", topic, "--group", group, "--from-beginning", *properties)
        config = ("--consumer.config", self._login())
        main = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        return self._command(main, bootstrap, *options, *config)

    def record(self, line: str) -> dict[str, Any]:
        partition, offset, value = line.split("\t")
        numbers = {"partition": partition, "offset": offset}
        return {"value": int(value), **{n: int(v.partition(":")[2]) for n, v in numbers.items()}}

    def attempt(self, bootstrap: str, topic: str) -> dict[str, Any]:
        options = ("--describe", "--topic", topic, "--command-config", self._login())
        command = self._command("org.apache.kafka.tools.TopicCommand", bootstrap, *options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
        found = re.search(r"(\w+Exception): (.*)", done.stdout + done.stderr)
        if found is None:
            return {"acked": 0}
        return {"error": found[1], "code": done.returncode, "text": found[2]}


TOOLS: Final[dict[str, Callable[[], Tool]]] = {"kcat": Kcat, "kafka-tools": KafkaTools}


def write(tool: Tool, command: list[str], lines: Iterable[tuple[int, str]]) -> list[int]:
    """Send lines; return the numbers of their records when all of them are acknowledged."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=errors, stderr=errors, text=True
        )
        assert process.stdin is not None
        sent = []
        for number, line in lines:
            process.stdin.write(line)
            process.stdin.flush()
            sent.append(number)
        process.stdin.close()
        code = process.wait(SECONDS)
        errors.seek(0)
        text = errors.read()
    if code or tool.complaint(text):
        raise SystemExit(f"exit code {code}: {text[-2_000:]}")
    return sent


def produce(tool: Tool, bootstrap: str, topic: str, codec: str, first: int, count: int) -> None:
    """Send `count` records."""
    numbers = range(first, first + count)
    write(tool, tool.writer(bootstrap, topic, codec), ((n, f"{n % 7}:{n}\n") for n in numbers))


def stream(tool: Tool, bootstrap: str, topic: str) -> None:
    """Send records 0, 1, … until standard input ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()

    def lines() -> Iterable[tuple[int, str]]:
        number = 0
        while not ended.is_set():
            yield number, f"{number}:{number}\n"
            say(sent=number)
            number += 1
            time.sleep(PAUSE_SECONDS)

    for number in write(tool, tool.writer(bootstrap, topic, "none"), lines()):
        say(acked=number)


def consume(tool: Tool, bootstrap: str, topic: str, group: str) -> None:
    """Consume as a group member until standard input ends."""
    process = subprocess.Popen(
        tool.reader(bootstrap, topic, group),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    threading.Thread(target=_print, args=(tool, process.stdout), daemon=True).start()
    sys.stdin.read()
    process.terminate()
    process.wait(SECONDS)


def _print(tool: Tool, output: IO[str]) -> None:
    for line in output:
        say(**tool.record(line))


def main(name: str, verb: str, bootstrap: str, topic: str, *rest: str) -> None:
    """Perform the operation `verb` with this tool. `rest`: the further arguments of the verb."""
    tool = TOOLS[name]()
    if verb == "produce":
        codec, first, count = rest
        produce(tool, bootstrap, topic, codec, int(first), int(count))
    elif verb == "stream":
        stream(tool, bootstrap, topic)
    elif verb == "consume":
        consume(tool, bootstrap, topic, rest[0])
    elif verb == "attempt":
        say(**tool.attempt(bootstrap, topic))
    else:
        raise SystemExit(f"no verb {verb}")


if __name__ == "__main__":
    main(*sys.argv[1:])
