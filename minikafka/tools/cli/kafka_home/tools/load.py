"""`kafka-verifiable-producer.sh`, `kafka-producer-perf-test.sh` and `kafka-consumer-perf-test.sh`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from minikafka.base.errors import KafkaError, MinikafkaError
from minikafka.base.model import TopicPartition
from minikafka.client import Client, Record
from minikafka.client.log_offsets import EARLIEST, LATEST
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.kafka_home.connection import connected, exception_text
from minikafka.tools.cli.kafka_home.options import Arguments
from minikafka.tools.cli.kafka_home.tools.console import properties_of
from minikafka.tools.cli.records.produce import ACKS, CODECS
from minikafka.tools.cli.terminal.echo import echo

_MEGABYTE: Final = 1024 * 1024
_AT_ONCE: Final = 200
"""Records in one request: their latency is that of the request."""
_REPORT_MS: Final = 5_000


class Pace:
    """Waits until the next records may be sent. `per_second`: negative for no limit."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._clock = SystemClock()
        self._began = self._clock.now()

    @property
    def at_once(self) -> int:
        """The number of records to send together."""
        slow = 0 <= self._per_second < 10 * _AT_ONCE
        return max(1, int(self._per_second / 10)) if slow else _AT_ONCE

    @property
    def seconds(self) -> float:
        """The time since the start."""
        return max((self._clock.now() - self._began) / 1000, 0.001)

    async def wait(self, sent: int) -> None:
        """Wait until the next record after `sent` ones is due."""
        if self._per_second > 0:
            due = self._began + 1000 * sent / self._per_second
            await self._clock.sleep(max(0, int(due - self._clock.now())))


def verifiable_producer(arguments: Arguments) -> None:
    """Send numbers as records, and print one object of JSON for each. Raises MinikafkaError."""
    job = _Numbers(arguments)
    try:
        connected(arguments, job.run)
    finally:
        job.end()


class _Numbers:
    """The records of `kafka-verifiable-producer.sh`: a number for each, with a prefix."""

    def __init__(self, arguments: Arguments) -> None:
        self._topic = arguments.required("topic")
        self._count = arguments.number("max-messages", -1) or 0
        self._rate = arguments.number("throughput", -1) or -1
        self._prefix = arguments.number("value-prefix")
        self._keys = arguments.number("repeating-keys")
        self._time = arguments.number("message-create-time", -1)
        self._acks = ACKS.get(arguments.value("acks", "-1") or "-1", -1)
        self._pace = Pace(self._rate)
        self._sent = self._acked = 0

    async def run(self, client: Client) -> None:
        """Send the records."""
        self._pace = Pace(self._rate)
        _event("startup_complete")
        while self._count < 0 or self._sent < self._count:
            left = self._pace.at_once
            if self._count >= 0:
                left = min(left, self._count - self._sent)
            await self._send(client, [self._record(self._sent + n) for n in range(left)])
            await self._pace.wait(self._sent)

    def _record(self, number: int) -> Record:
        value = str(number) if self._prefix is None else f"{self._prefix}.{number}"
        key = None if self._keys is None else str(number % self._keys).encode()
        record = Record(key=key, value=value.encode())
        if self._time is not None and self._time >= 0:
            record = record._replace(timestamp=self._time + int(self._pace.seconds * 1000))
        return record

    async def _send(self, client: Client, records: Sequence[Record]) -> None:
        self._sent += len(records)
        try:
            stored = await client.produce(self._topic, records, acks=self._acks)
        except KafkaError as error:
            text = exception_text(error.code, error.reason)
            for record in records:
                _event("producer_send_error", **_names(record), topic=self._topic, exception=text)
            return
        self._acked += len(records)
        for record, (partition, offset) in zip(records, stored, strict=True):
            where = {"topic": self._topic, "partition": partition, "offset": offset}
            _event("producer_send_success", **_names(record), **where)

    def end(self) -> None:
        """Print the counts."""
        rate = self._acked / self._pace.seconds
        _event("shutdown_complete")
        _event(
            "tool_data",
            sent=self._sent,
            acked=self._acked,
            target_throughput=self._rate,
            avg_throughput=rate,
        )


def _names(record: Record) -> dict[str, str | None]:
    key, value = record.key, record.value
    return {
        "key": None if key is None else key.decode(),
        "value": None if value is None else value.decode(),
    }


def _event(name: str, **fields: Any) -> None:
    shown = {"timestamp": SystemClock().wall_ms(), "name": name, **fields}
    echo(json.dumps(shown, separators=(",", ":")))


def producer_perf(arguments: Arguments) -> None:
    """Send records and print rates and latencies. Raises MinikafkaError."""
    topic, count = arguments.required("topic"), _count(arguments, "num-records")
    arguments.required("throughput")
    if arguments.has("record-size") == arguments.has("payload-file"):
        raise MinikafkaError("either --record-size or --payload-file must be specified")
    payloads = _payloads(arguments)
    settings = properties_of(arguments, "producer-props")
    acks = ACKS.get(settings.get("acks", "all"), -1)
    codec = CODECS.get(settings.get("compression.type", "none"), 0)

    async def work(client: Client) -> None:
        pace, clock = Pace(float(arguments.required("throughput"))), SystemClock()
        whole, window = _Latencies(), _Latencies()
        reported = 0.0
        while (sent := len(whole.ms)) < count:
            number = min(pace.at_once, count - sent)
            values = [payloads[(sent + n) % len(payloads)] for n in range(number)]
            began = clock.now()
            await client.produce(
                topic, [Record(value=one) for one in values], acks=acks, codec=codec
            )
            took, size = clock.now() - began, sum(map(len, values))
            whole.add(number, took, size)
            window.add(number, took, size)
            if (pace.seconds - reported) * 1000 >= _REPORT_MS:
                echo(window.line(pace.seconds - reported))
                window, reported = _Latencies(), pace.seconds
            await pace.wait(len(whole.ms))
        echo(whole.last_line(pace.seconds))

    connected(arguments, work)


def _count(arguments: Arguments, name: str) -> int:
    found = arguments.number(name)
    if found is None or found < 1:
        raise MinikafkaError(f"--{name} must be at least 1")
    return found


def _payloads(arguments: Arguments) -> list[bytes]:
    """Return the values to send: the lines of a file, or one of random letters. Raises MinikafkaError."""
    size = arguments.number("record-size")
    if size is not None:
        return [bytes(65 + one % 26 for one in SystemRng().bytes(max(size, 1)))]
    file = arguments.required("payload-file")
    delimiter = arguments.value("payload-delimiter", "\\n") or "\\n"
    try:
        parts = Path(file).read_bytes().split(delimiter.encode().decode("unicode_escape").encode())
    except OSError as error:
        raise MinikafkaError(f"{file}: {error.strerror}") from None
    if not (found := [part for part in parts if part]):
        raise MinikafkaError(f"File does not exist or empty file provided: {file}")
    return found


class _Latencies:
    """The latencies and bytes of records that were sent."""

    def __init__(self) -> None:
        self.ms: list[float] = []
        self._size = 0

    def add(self, number: int, ms: float, size: int) -> None:
        self.ms += [ms] * number
        self._size += size

    def _head(self, seconds: float, digits: int) -> str:
        rate, volume = len(self.ms) / seconds, self._size / seconds / _MEGABYTE
        mean, most = sum(self.ms) / max(len(self.ms), 1), max(self.ms, default=0)
        rates = f"{rate:.{digits}f} records/sec ({volume:.2f} MB/sec)"
        places = 1 if digits == 1 else 2
        latency = f"{mean:.{places}f} ms avg latency, {most:.{places}f} ms max latency"
        return f"{len(self.ms)} records sent, {rates}, {latency}"

    def line(self, seconds: float) -> str:
        """Return the line of a window of some seconds."""
        return self._head(seconds, 1) + "."

    def last_line(self, seconds: float) -> str:
        """Return the last line, with quantiles."""
        ordered = sorted(self.ms) or [0.0]
        quantiles = ((0.5, "50th"), (0.95, "95th"), (0.99, "99th"), (0.999, "99.9th"))
        parts = (
            f"{ordered[min(int(len(ordered) * part), len(ordered) - 1)]:.0f} ms {name}"
            for part, name in quantiles
        )
        return f"{self._head(seconds, 6)}, {', '.join(parts)}."


def consumer_perf(arguments: Arguments) -> None:
    """Read records and print one line with the rates. Raises MinikafkaError."""
    topic, count = arguments.required("topic"), _count(arguments, "messages")
    start = LATEST if arguments.has("from-latest") else EARLIEST

    async def work(client: Client) -> None:
        pace, clock = Pace(-1), SystemClock()
        began, read, size = clock.wall_ms(), 0, 0
        partitions = await client.list_offsets(topic, "earliest")
        positions = {TopicPartition(topic, number): start for number in partitions}
        async for record in client.partition_reader(reset=start).read(positions, None):
            read += 1
            size += len(record.key or b"") + len(record.value or b"")
            if read >= count:
                break
        seconds = pace.seconds
        megabytes = size / _MEGABYTE
        if not arguments.has("hide-header"):
            echo(
                "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
                "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
            )
        rate, speed = megabytes / seconds, read / seconds
        counts = f"{megabytes:.4f}, {rate:.4f}, {read}, {speed:.4f}"
        rest = f"0, {int(seconds * 1000)}, {rate:.4f}, {speed:.4f}"
        echo(f"{_time(began)}, {_time(clock.wall_ms())}, {counts}, {rest}")

    connected(arguments, work)


def _time(wall_ms: int) -> str:
    at = datetime.fromtimestamp(wall_ms / 1000, UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}:{wall_ms % 1000:03d}"
