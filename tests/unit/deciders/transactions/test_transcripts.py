"""The decisions of the transaction coordinator, told in `transcripts/`.

Appends are committed and producer ids are allocated at once, from 40 on. After `hold`, they wait for `committed` or
`failed`. `record` writes a record into the log before the coordinator loads it. Times count from the start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.deciders.coordinator_world import START_WALL_MS as START_MS
from support.deciders.transaction_world import TransactionWorld
from support.deciders.transcripts import Input, play, scenarios

from minikafka.base.coordinators import (
    Append,
    KeyValue,
    LeadershipBegun,
    LeadershipEnded,
    LoadedRecord,
    LoadFinished,
    LoadPartition,
    RecordsRead,
    TransactionEnded,
)
from minikafka.base.errors import ErrorCode, code_name
from minikafka.base.model import TopicPartition
from minikafka.deciders.decider import Answer
from minikafka.deciders.transactions.commands import (
    AddPartitionsResponse,
    DescribedTransaction,
    DescribeTransactionsResponse,
    DropMarkers,
    EndResponse,
    InitProducerIdResponse,
    ListTransactionsResponse,
    SendMarkers,
)
from minikafka.deciders.transactions.events import (
    AddPartitionsRequest,
    DescribeTransactionsRequest,
    EndRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    MarkersFenced,
    MarkersWritten,
    VerifyRequest,
)
from minikafka.deciders.transactions.records import (
    read_transaction_key,
    read_transaction_value,
    transaction_key,
    transaction_value,
)
from minikafka.deciders.transactions.reports import transactions_with
from minikafka.deciders.transactions.states import TransactionMetadata, TransactionState

SHORT_KEY = b"\0\0\0"


@pytest.mark.parametrize("file", scenarios(__file__))
def test_transcript(file: Path, pytestconfig: pytest.Config) -> None:
    play(file, Player().play, rewrite=pytestconfig.getoption("--rewrite"))


class Player(TransactionWorld):
    """A coordinator that a transcript drives. Each input is told by the method of its verb."""

    def __init__(self) -> None:
        super().__init__(loads=False)
        self.began = self.now
        self.waiting: list[tuple[str, int]] = []
        """The callers that are not answered yet."""
        self.lines: list[str] = []

    def wall_ms(self) -> int:
        return START_MS + self.now - self.began

    def play(self, heard: Input) -> Iterable[str]:
        self.lines = []
        play: Callable[[Input], None] = getattr(self, f"on_{heard.verb}")
        play(heard)
        return self.lines

    # ---- what the coordinator asks for

    def run(self, commands: Sequence[Any]) -> None:
        for command in commands:
            self.tell(command)
            if isinstance(command, Answer):
                self.waiting.remove(command.caller)  # type: ignore[arg-type]
            super().run([command])

    def tell(self, command: Any) -> None:
        if isinstance(command, Answer):
            self.lines += (
                f"answer {command.caller[0]}: {line}"  # type: ignore[index]
                for line in response_lines(command.response)
            )
        elif isinstance(command, Append):
            self.lines += (f"append {record_text(record)}" for record in command.records)
        elif isinstance(command, SendMarkers):
            self.lines.append(markers_text(command))
        elif isinstance(command, DropMarkers):
            self.lines.append(f"drop the markers of partition {command.partition}")
        else:
            self.lines.append("allocate a producer id")

    def on_hold(self, heard: Input) -> None:
        self.holds = True

    def on_release(self, heard: Input) -> None:
        self.holds = False
        assert not self.held

    def on_committed(self, heard: Input) -> None:
        self.finish(0)

    def on_allocated(self, heard: Input) -> None:
        self.finish(0)

    def on_failed(self, heard: Input) -> None:
        (error,) = heard.words
        self.finish(ErrorCode[error])

    # ---- requests

    def caller(self, heard: Input) -> tuple[str, int]:
        caller = (heard.option("as", heard.verb), next(self.callers))
        self.waiting.append(caller)
        return caller

    def on_init(self, heard: Input) -> None:
        (name,) = heard.words
        producer = producer_of(heard.option("producer", "-1/-1"))
        timeout_ms = ms_of(heard.option("timeout", "60s"))
        self.handle(InitProducerIdRequest(name, timeout_ms, *producer, self.caller(heard)))

    def on_add(self, heard: Input) -> None:
        name, producer, *words = heard.words
        tps, client = partitions_of(words), heard.option("client")
        caller = self.caller(heard)
        self.handle(AddPartitionsRequest(name, *producer_of(producer), tps, client, caller))

    def on_verify(self, heard: Input) -> None:
        name, producer, *words = heard.words
        tps, caller = partitions_of(words), self.caller(heard)
        self.handle(VerifyRequest(name, *producer_of(producer), tps, caller))

    def on_commit(self, heard: Input) -> None:
        self.end(heard, True)

    def on_abort(self, heard: Input) -> None:
        self.end(heard, False)

    def end(self, heard: Input, committed: bool) -> None:
        name, producer = heard.words
        self.handle(EndRequest(name, *producer_of(producer), committed, self.caller(heard)))

    def on_describe(self, heard: Input) -> None:
        self.handle(DescribeTransactionsRequest(heard.words, self.caller(heard)))

    def on_list(self, heard: Input) -> None:
        states = [name for name in heard.option("states").split(",") if name]
        producers = [int(number) for number in heard.option("producers").split(",") if number]
        age = heard.option("older-than")
        age_ms = ms_of(age) if age else -1
        self.handle(ListTransactionsRequest(states, producers, age_ms, self.caller(heard)))

    def on_why(self, heard: Input) -> None:
        (tp,) = partitions_of(heard.words)
        found = transactions_with(self.coordinator.context, tp)
        for each in found["open"]:
            self.lines.append(" ".join(f"{name}={value}" for name, value in each.items()))
        self.lines.append("loading" if found["loading"] else "nothing is loading")

    # ---- markers

    def on_written(self, heard: Input) -> None:
        """Report markers as written: those of all partitions, or of the words; of the command with this number."""
        command = self.markers[heard.number("markers", len(self.markers)) - 1]
        tps = partitions_of(heard.words) or command.partitions
        self.handle(MarkersWritten(command.ended, tps))

    def on_fenced(self, heard: Input) -> None:
        command = self.markers[heard.number("markers", len(self.markers)) - 1]
        self.handle(MarkersFenced(command.ended))

    # ---- the topic

    def on_partitions(self, heard: Input) -> None:
        self.partition_count = int(heard.words[0])
        self.coordinator.context.partition_count = self.partition_count

    def on_record(self, heard: Input) -> None:
        name, state, *more = heard.words
        if state == "tombstone":
            self.log.append((transaction_key(name), None))
            return
        producer, *tps = more
        started = heard.option("started", "" if state == "Empty" else "0s")
        metadata = TransactionMetadata(
            *producer_of(producer),
            ms_of(heard.option("timeout", "60s")),
            TransactionState(state),
            START_MS + ms_of(heard.option("updated", "0s")),
            START_MS + ms_of(started) if started else -1,
            frozenset(partitions_of(tps)),
        )
        self.log.append((transaction_key(name), transaction_value(metadata)))

    def on_garbage(self, heard: Input) -> None:
        """Write a record that no coordinator can read: without a key, with another version, or cut off."""
        (kind,) = heard.words
        value = transaction_value(
            TransactionMetadata(40, 0, 60_000, TransactionState.EMPTY, START_MS)
        )
        self.log.append(
            {
                "no-key": (None, value),
                "unknown-key": (b"\0\1\0\1x", value),
                "short-key": (SHORT_KEY, value),
                "short-value": (transaction_key("bad"), value[:-1]),
            }[kind]
        )

    def on_lead(self, heard: Input) -> None:
        """Load the log in an epoch, from the first record to the last."""
        number, epoch = int(heard.words[0]), heard.number("epoch")
        if not self.needs_load(number, epoch):
            self.lines.append("loaded already")
            return
        self.handle(RecordsRead(number, epoch, [LoadedRecord(*record) for record in self.log]))
        self.handle(LoadFinished(number, epoch, self.partition_count))

    def needs_load(self, number: int, epoch: int) -> bool:
        commands = self.coordinator.handle(LeadershipBegun(number, epoch), self.now)
        assert commands in ([], [LoadPartition(number, epoch)])
        return bool(commands)

    def on_begin(self, heard: Input) -> None:
        assert self.needs_load(int(heard.words[0]), heard.number("epoch"))

    def on_read(self, heard: Input) -> None:
        records = [LoadedRecord(*record) for record in self.log]
        self.handle(RecordsRead(int(heard.words[0]), heard.number("epoch"), records))

    def on_loaded(self, heard: Input) -> None:
        self.handle(LoadFinished(int(heard.words[0]), heard.number("epoch"), self.partition_count))

    def on_resign(self, heard: Input) -> None:
        self.handle(LeadershipEnded(int(heard.words[0])))

    def on_marker(self, heard: Input) -> None:
        """Report a marker in `__transaction_state` itself, which only an administrator can write."""
        number, producer_id, kind = heard.words
        self.handle(TransactionEnded(int(number), int(producer_id), kind == "commit"))

    def on_log(self, heard: Input) -> None:
        """Drop the log, as if another broker had another one."""
        assert heard.flag("empty")
        self.log.clear()

    def on_crash(self, heard: Input) -> None:
        """Begin with another coordinator, which knows only the log."""
        self.start()
        self.waiting.clear()
        self.held.clear()

    # ---- time

    def on_settings(self, heard: Input) -> None:
        for option, name in {
            "abort-interval": "abort_timed_out_interval_ms",
            "expire-interval": "remove_expired_interval_ms",
            "expiration": "expiration_ms",
        }.items():
            value = heard.option(option)
            if value:
                self.settings[name] = ms_of(value)
        self.start()

    def on_after(self, heard: Input) -> None:
        """Let time pass, and wake the coordinator at its deadlines."""
        self.advance(ms_of(heard.words[0]))

    def on_timer(self, heard: Input) -> None:
        due = self.coordinator.next_deadline()
        self.lines.append("none" if due is None else f"in {time_text(due - self.now)}")


def producer_of(text: str) -> tuple[int, int]:
    """Return the id and epoch of a producer from `40/3`."""
    producer_id, epoch = text.split("/")
    return int(producer_id), int(epoch)


def partitions_of(words: Sequence[str]) -> list[TopicPartition]:
    return [
        TopicPartition(topic, int(number))
        for topic, _, number in (w.rpartition("-") for w in words)
    ]


def ms_of(text: str) -> int:
    """Return a time in milliseconds from `200ms`, `3.5s` or `-3s`."""
    if text.endswith("ms"):
        return int(text.removesuffix("ms"))
    return round(float(text.removesuffix("s")) * 1_000)


def time_text(ms: int) -> str:
    return f"{ms / 1_000:g}s" if ms % 100 == 0 else f"{ms}ms"


def wall_text(ms: int) -> str:
    return time_text(ms - START_MS)


def tps_text(tps: Iterable[TopicPartition]) -> str:
    return " ".join(f" {tp.topic}-{tp.partition}" for tp in tps).replace("  ", " ")


def record_text(record: KeyValue) -> str:
    key, value = record
    name = read_transaction_key(key)
    if value is None:
        return f"{name}: tombstone"
    data = read_transaction_value(value)
    started = "" if data.started_ms == -1 else f" started={wall_text(data.started_ms)}"
    return (
        f"{name}: {data.state.value} {data.producer_id}/{data.producer_epoch}"
        f" timeout={time_text(data.timeout_ms)} updated={wall_text(data.updated_ms)}{started}"
        f"{tps_text(sorted(data.partitions))}"
    )


def markers_text(command: SendMarkers) -> str:
    ended = command.ended
    kind = "commit" if ended.committed else "abort"
    return (
        f"send markers of {ended.transactional_id}: {kind}"
        f" {ended.producer_id}/{ended.producer_epoch} epoch={ended.coordinator_epoch}"
        f"{tps_text(command.partitions)}"
    )


def response_lines(response: Any) -> list[str]:
    if isinstance(response, InitProducerIdResponse):
        if response.error:
            assert response[1:] == (-1, -1)
            return [code_name(response.error)]
        return [f"{response.producer_id}/{response.producer_epoch}"]
    if isinstance(response, AddPartitionsResponse):
        return [
            f"{code_name(error)}{tps_text([tp for tp, code in response.errors.items() if code == error])}"
            for error in dict.fromkeys(response.errors.values())
        ]
    if isinstance(response, EndResponse):
        return [code_name(response.error)]
    if isinstance(response, DescribeTransactionsResponse):
        return list(map(description_text, response.transactions))
    assert isinstance(response, ListTransactionsResponse)
    return listing_lines(response)


def description_text(found: DescribedTransaction) -> str:
    if found.error:
        assert found == DescribedTransaction(found.transactional_id, found.error)
        return f"{found.transactional_id!r} {code_name(found.error)}"
    started = "" if found.start_ms == -1 else f" started={wall_text(found.start_ms)}"
    return (
        f"{found.transactional_id} {found.state} {found.producer_id}/{found.producer_epoch}"
        f" timeout={time_text(found.timeout_ms)}{started}{tps_text(found.partitions)}"
    )


def listing_lines(found: ListTransactionsResponse) -> list[str]:
    if found.error:
        return [code_name(found.error)]
    lines = [f"unknown state {name}" for name in found.unknown_states]
    lines += (
        f"{each.transactional_id} {each.state} {each.producer_id}" for each in found.transactions
    )
    return lines or ["nothing"]
