"""The check of the order of transactions: order of each client, write cycles and information cycles.

Kafka does not order transactions that run at the same time: of two such transactions, each may be first in one
partition. Such write cycles are counted as `interleaved`, and are no anomaly. A write cycle is one if a transaction
had ended before the other began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from math import inf
from typing import TypeAlias

from minikafka.base.model import TopicPartition
from minikafka.checks.histories import READ
from minikafka.checks.isolation.findings import Findings
from minikafka.checks.isolation.operations import Read, Transaction, Write
from minikafka.checks.isolation.writes import Logs, Place

Edges: TypeAlias = Mapping[Transaction, Iterable[Transaction]]
Owners: TypeAlias = Mapping[Place, Transaction]


def check_order(logs: Logs, owners: Owners, findings: Findings) -> None:
    """Report records that lie before those of an earlier transaction, and zombies. Count interleaved transactions."""
    later: defaultdict[Transaction, set[Transaction]] = defaultdict(set)
    for tp, log in logs.items():
        placed = [(at, owners[tp, at]) for at in sorted(log.records) if (tp, at) in owners]
        _check_times(tp, placed, findings)
        transactions = [one for _, one in placed if one.number is not None]
        for first, second in pairwise(transactions):
            if first is not second:
                later[first].add(second)
        for record, highest in log.epochs_back:
            text = f"its epoch {record.epoch} of producer {record.producer_id} is below {highest}"
            findings.add("zombie_write", tp, record.offset, owners.get((tp, record.offset)), text)
    findings.facts["interleaved"] += sum(map(len, components(later)))


def _check_times(
    tp: TopicPartition, placed: Sequence[tuple[int, Transaction]], findings: Findings
) -> None:
    """Report each record that was written before a transaction that began later, and was already ended."""
    latest: Transaction | None = None
    began = -inf
    for offset, one in placed:
        if one.ended is not None and began > one.ended:
            text = f"{latest} began after its end, but has a record before it"
            findings.add("write_cycle", tp, offset, one, text)
        if one.began is not None and one.began > began:
            latest, began = one, one.began


def check_clients(
    placed: Iterable[tuple[Place, Write]], owners: Owners, findings: Findings
) -> None:
    """Report records that lie in another order than their client sent them.

    `placed`: the place of each record and the record, in the order of their numbers. A record was sent earlier than
    another if its call had returned before the other call.
    """
    highest: dict[tuple[str, TopicPartition], int] = {}
    called: list[tuple[int, int, tuple[str, TopicPartition], int]] = []
    for order, ((tp, offset), write) in enumerate(placed):
        key = write.transaction.client, tp
        while called and called[0][0] <= write.number:
            *_, earlier, reached = heappop(called)
            highest[earlier] = max(highest.get(earlier, -1), reached)
        before = highest.get(key, -1)
        if offset < before:
            text = f"an earlier record of {key[0]} is at offset {before}"
            findings.add("reordered", tp, offset, owners.get((tp, offset)), text, write)
        heappush(called, (write.returned, order, key, offset))


def check_information(
    reads: Mapping[str, Sequence[Read]],
    transactions: Sequence[Transaction],
    owners: Owners,
    findings: Findings,
) -> None:
    """Report circles of transactions that read from each other, or of which one ran before the other."""
    edges: defaultdict[Transaction, set[Transaction]] = defaultdict(set)
    for steps in reads.values():
        for step in steps:
            owner = owners.get((step.tp, step.offset)) if step.kind == READ else None
            if owner is not None and step.transaction is not None and owner is not step.transaction:
                edges[owner].add(step.transaction)
    previous: dict[str, Transaction] = {}
    for one in transactions:
        if one.number is not None:
            if one.client in previous:
                edges[previous[one.client]].add(one)
            previous[one.client] = one
    for circle in components(edges):
        names = ", ".join(sorted(map(str, circle)))
        findings.add("information_cycle", None, -1, circle[0], f"a circle of {names}")


def components(edges: Edges) -> list[list[Transaction]]:
    """Return the strongly connected components with more than one transaction (Tarjan's algorithm)."""
    search = _Search(edges)
    for one in list(edges):
        search.visit(one)
    return search.found


class _Search:
    """One search with an explicit stack, because a chain of transactions can be longer than Python's stack."""

    def __init__(self, edges: Edges) -> None:
        self.found: list[list[Transaction]] = []
        self._edges = edges
        self._index: dict[Transaction, int] = {}
        self._low: dict[Transaction, int] = {}
        self._stack: list[Transaction] = []
        self._on_stack: set[Transaction] = set()

    def visit(self, start: Transaction) -> None:
        if start in self._index:
            return
        work = [(start, self._enter(start))]
        while work:
            node, following = work[-1]
            for after in following:
                if after not in self._index:
                    work.append((after, self._enter(after)))
                    break
                if after in self._on_stack:
                    self._low[node] = min(self._low[node], self._index[after])
            else:
                work.pop()
                self._leave(node)
                if work:
                    parent = work[-1][0]
                    self._low[parent] = min(self._low[parent], self._low[node])

    def _enter(self, node: Transaction) -> Iterable[Transaction]:
        self._index[node] = self._low[node] = len(self._index)
        self._stack.append(node)
        self._on_stack.add(node)
        return iter(self._edges.get(node, ()))

    def _leave(self, node: Transaction) -> None:
        if self._low[node] != self._index[node]:
            return
        component: list[Transaction] = []
        while not component or component[-1] is not node:
            component.append(self._stack.pop())
            self._on_stack.discard(component[-1])
        if len(component) > 1:
            self.found.append(component)
