"""The check of reads: what read_committed consumers received, compared with the final logs.

A run is the part of a consumer's reads of one partition from a seek to the next seek. Within a run, a consumer must
receive every visible record once, in order. Members of a group share this duty (`groups.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import OPAQUE, READ, SEEK
from minikafka.checks.isolation.findings import Findings
from minikafka.checks.isolation.logs import HIDDEN, OPEN, VISIBLE, PartitionLog, Stored
from minikafka.checks.isolation.operations import Fate, Read, Transaction
from minikafka.checks.isolation.writes import Logs, Place

_WHY = {
    HIDDEN: ("aborted_read", "the log has an abort marker after it"),
    OPEN: ("intermediate_read", "its transaction is open in the log"),
}


def check_reads(
    reads: Mapping[str, Sequence[Read]],
    logs: Logs,
    owners: Mapping[Place, Transaction],
    findings: Findings,
) -> None:
    """Report every read that contradicts the logs or the outcome of a transaction."""
    for client, steps in reads.items():
        for tp, run in _runs(steps):
            if (log := logs.get(tp)) is not None:
                _Run(client, tp, log, owners, findings).check(run)


def _runs(steps: Sequence[Read]) -> Iterator[tuple[TopicPartition, Sequence[Read]]]:
    """Yield the runs of one consumer."""
    current: dict[TopicPartition, list[Read]] = {}
    for step in steps:
        if step.kind == SEEK and step.tp in current:
            yield step.tp, current.pop(step.tp)
        current.setdefault(step.tp, []).append(step)
    yield from current.items()


class _Run:
    """One run: the position of the consumer, and the visible records that it has passed over."""

    def __init__(
        self,
        client: str,
        tp: TopicPartition,
        log: PartitionLog,
        owners: Mapping[Place, Transaction],
        findings: Findings,
    ) -> None:
        self._client = client
        self._tp = tp
        self._log = log
        self._owners = owners
        self._findings = findings
        self._position = -1
        self._skipped: list[int] = []
        self._delivered: set[Transaction] = set()

    def check(self, run: Sequence[Read]) -> None:
        for step in run:
            if step.group is not None:
                if step.kind == READ:
                    self._check_record(step)
                continue
            if self._position < 0 or step.kind == SEEK:
                self._position = step.offset
            if step.offset < self._position:
                if step.kind == READ:
                    self._add("read_back", step.offset, f"its position was {self._position}", step)
                continue
            passed = range(self._position, step.offset)
            self._skipped += [at for at in passed if self._log.outcomes.get(at) == VISIBLE]
            self._position = step.offset
            if step.kind == READ:
                self._position += 1
                self._check_record(step)
        for offset in self._skipped:
            self._report_skipped(offset)

    def _check_record(self, step: Read) -> None:
        self._findings.facts["reads"] += 1
        record = self._log.records.get(step.offset)
        if record is None or step.digest not in (record.digest, OPAQUE):
            if record is not None or not self._log.may_have_removed(step.offset):
                text = "the log has no record with this value here"
                self._add("read_differs", step.offset, text, step)
            return
        owner = self._owners.get((self._tp, step.offset))
        if owner is not None:
            self._delivered.add(owner)
        if (outcome := self._log.outcomes[step.offset]) in _WHY:
            kind, text = _WHY[outcome]
            self._add(kind, step.offset, text, step)
        elif owner is not None and owner.number is not None:
            self._check_owner(step, owner)

    def _check_owner(self, step: Read, owner: Transaction) -> None:
        """Report a read of a transaction that was not committed, or not yet."""
        if owner.fate is Fate.ABORTED:
            self._add("aborted_read", step.offset, f"{owner} was not committed", step)
        elif step.time is not None and owner.commit_invoked is not None:
            early = owner.commit_invoked - step.time
            if early > 0:
                text = f"it was read {early:.3f} s before its client asked for the commit"
                self._add("intermediate_read", step.offset, text, step)

    def _report_skipped(self, offset: int) -> None:
        owner = self._owners.get((self._tp, offset))
        if owner is not None and owner in self._delivered:
            text = "it was passed over, but other records of the transaction were received"
            self._add("intermediate_read", offset, text, self._log.records[offset])
        else:
            self._add("skipped_read", offset, "it is visible in the log", self._log.records[offset])

    def _add(self, kind: str, offset: int, text: str, about: Read | Stored) -> None:
        owner = self._owners.get((self._tp, offset))
        self._findings.add(kind, self._tp, offset, owner, f"read by {self._client}: {text}", about)
