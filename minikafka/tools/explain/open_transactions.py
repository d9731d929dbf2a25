"""The open transactions of a partition, which hold back its last stable offset, and the findings about them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from minikafka.base.model import NO_EPOCH, TopicPartition
from minikafka.tools.explain.finding import Finding
from minikafka.tools.explain.trace import ids

SETTLED_MS: Final = 1_000
"""A transaction that no coordinator reports, and whose last record is younger, may have ended between two reports."""
STUCK_MS: Final = 10_000
"""A transaction that has been open for this long is a problem."""
Answer = Mapping[str, Any]


class OpenTransaction(NamedTuple):
    """A transaction that has no marker in the partition yet. Times are ages in milliseconds.

    `coordinator`: the broker that coordinates it. The values after it are the coordinator's. They are None if no broker
    that answers coordinates the transaction. `client`: client id and address of its producer; None if another broker
    was the coordinator when the producer added its last partitions.
    """

    producer_id: int
    producer_epoch: int
    start_offset: int
    last_record_ms: int
    coordinator: int | None = None
    transactional_id: str | None = None
    state: str | None = None
    age_ms: int | None = None
    timeout_ms: int | None = None
    client: str | None = None

    @property
    def is_stuck(self) -> bool:
        """True if it has been open for long; without a coordinator, if its last record is old."""
        return (self.last_record_ms if self.age_ms is None else self.age_ms) >= STUCK_MS


def open_transactions(
    leader: Answer | None, answers: Mapping[int, Answer]
) -> list[OpenTransaction]:
    """Return the open transactions in the leader's report of its replica, the earliest first.

    `answers`: the brokers' answers to the `explain` call, by broker id.
    """
    reported = [
        (one.get("coordinator_epoch", NO_EPOCH), broker, one)
        for broker, answer in answers.items()
        for one in answer.get("transactions", {}).get("open", ())
    ]
    # A former coordinator that does not know its successor reports too: the newest epoch counts.
    reported.sort(key=lambda found: found[0])
    coordinated = {one["producer_id"]: (broker, one) for _, broker, one in reported}
    found = []
    for one in leader.get("open_transactions", ()) if leader else ():
        own = OpenTransaction(**one)
        if own.producer_id in coordinated:
            broker, known = coordinated[own.producer_id]
            names = ("transactional_id", "state", "age_ms", "timeout_ms", "client")
            own = own._replace(coordinator=broker, **{name: known.get(name) for name in names})
        if own.coordinator is not None or own.last_record_ms >= SETTLED_MS:
            found.append(own)
    return sorted(found, key=lambda one: one.start_offset)


def seems_hanging(answers: Mapping[int, Answer]) -> bool:
    """True if a replica reports an open transaction of a producer for which no coordinator reports one."""
    coordinated = {
        one["producer_id"]
        for answer in answers.values()
        for one in answer.get("transactions", {}).get("open", ())
    }
    return any(
        one["producer_id"] not in coordinated
        for answer in answers.values()
        for one in (answer["replica"] or {}).get("open_transactions", ())
    )


def still_open(first: Mapping[int, Answer], second: Mapping[int, Answer]) -> dict[int, Answer]:
    """Return the first answers of the brokers, with only those open transactions that the second answers have too.

    A transaction that has ended between the answers of its leader and of its coordinator would seem to hang.
    """
    return {id_: _without_ended(answer, second.get(id_)) for id_, answer in first.items()}


def _without_ended(first: Answer, second: Answer | None) -> Answer:
    replica = first["replica"]
    if not replica or second is None:
        return first
    remaining = {
        (one["producer_id"], one["start_offset"])
        for one in (second["replica"] or {}).get("open_transactions", ())
    }
    found = [
        one
        for one in replica.get("open_transactions", ())
        if (one["producer_id"], one["start_offset"]) in remaining
    ]
    return {**first, "replica": {**replica, "open_transactions": found}}


def held_back(
    tp: TopicPartition,
    leader: Answer,
    transactions: Iterable[OpenTransaction],
    without_answer: Iterable[int],
    where: str = "",
) -> list[Finding]:
    """Return a finding with each transaction that holds back the last stable offset; [] if there is none.

    `without_answer`: brokers that may coordinate a transaction, but do not say so. `where`: see `PartitionEvidence`.
    """
    because = tuple(_described(tp, transactions, list(without_answer), where))
    if not because:
        return []
    stable, high_watermark = leader["last_stable_offset"], leader["high_watermark"]
    text = (
        f"read_committed consumers read up to the last stable offset {stable}, not up to the high watermark "
        f"{high_watermark}, because of open transactions: {len(because)}"
    )
    is_problem = any(finding.is_problem for finding in because)
    return [Finding("held-back", text, because=because, is_problem=is_problem)]


def _described(
    tp: TopicPartition,
    transactions: Iterable[OpenTransaction],
    without_answer: list[int],
    where: str,
) -> Iterator[Finding]:
    for one in transactions:
        producer, epoch = f"producer {one.producer_id}", f"epoch {one.producer_epoch}"
        if one.coordinator is not None:
            client = f"client {one.client}; " if one.client else ""
            text = (
                f"transactional id {one.transactional_id} ({producer}, {epoch}; {client}coordinator: broker "
                f"{one.coordinator}) has had a transaction open since offset {one.start_offset}, for "
                f"{_age(one.age_ms or 0)}: {_end(one, where)}"
            )
            yield Finding("open-transaction", text, is_problem=one.is_stuck)
            continue
        text = (
            f"{producer} ({epoch}) has a transaction open since offset {one.start_offset}; its last record is "
            f"{_age(one.last_record_ms)} old"
        )
        if without_answer:
            text += f"; its coordinator is not known: no answer from brokers {ids(without_answer)}"
            yield Finding(
                "coordinator-unknown", text, tuple(without_answer), is_problem=one.is_stuck
            )
        else:
            text += (
                "; it is hanging: no coordinator knows it, so no marker will end it; "
                f"`minikafka transactions abort {tp} --start-offset {one.start_offset}{where}` does"
            )
            yield Finding("hanging-transaction", text)


def _end(one: OpenTransaction, where: str) -> str:
    """Return how the transaction will end, and how to end it earlier."""
    if one.state != "Ongoing":
        return f"its end is decided ({one.state}), and its markers are being written"
    left = (one.timeout_ms or 0) - (one.age_ms or 0)
    if left <= 0:
        return f"its timeout of {_age(one.timeout_ms or 0)} has passed, and it is being aborted"
    name = shlex.quote(one.transactional_id or "")
    return (
        f"it is aborted in {_age(left)} (its transaction.timeout.ms is {one.timeout_ms}), unless its producer ends it "
        f"earlier; `minikafka transactions fence {name}{where}` aborts it now and fences its producer"
    )


def _age(ms: int) -> str:
    return f"{ms} ms" if ms < 10_000 else f"{ms // 1000} s"
