"""Random schedules of producers, appends, markers and coordinator changes. `TransactionStorm` checks the invariants."""

from __future__ import annotations

import pytest
from support.deciders.transaction_storm import TransactionStorm

from minikafka.base.errors import ErrorCode
from minikafka.deciders.transactions.context import Context, TransactionalId
from minikafka.deciders.transactions.coordinator import TransactionCoordinator
from minikafka.deciders.transactions.ending import Ending
from minikafka.deciders.transactions.writes import Writes


@pytest.mark.parametrize("seed", range(40))
def test_transaction_invariants_hold_in_generated_schedules(seed):
    schedule = TransactionStorm(seed)

    schedule.run()

    assert schedule.answers > 100
    assert schedule.committed > 0
    assert schedule.aborted > 0


def take_over_failed(writes, txn, metadata, real=Writes.write):
    yield from real(writes, txn, metadata)
    if metadata is not None and writes._context.has(txn):
        writes._context.store(txn, metadata)
    return 0


def store_early(writes, txn, metadata, real=Writes.write):
    if metadata is not None:
        writes._context.store(txn, metadata)
    return (yield from real(writes, txn, metadata))


def load_and_forget(context, load, real=Context.add_all):
    real(context, load)
    return []


def complete_early(ending, event, real=Ending.markers_written):
    txn = ending._ending(event.ended)
    real(ending, event if txn is None else event._replace(partitions=list(txn.remaining)))


def complete_once(ending, txn, real=Ending._complete):
    yield from real(ending, txn)
    ending._failed.clear()


def find_any_epoch(core, request):
    found = core.context.find(request.transactional_id)
    return (found or ErrorCode.INVALID_PRODUCER_ID_MAPPING) if isinstance(found, int) else found


PLANTED = {
    "records are in the context before their append": (Writes, "write", store_early),
    "appends that failed are taken over": (Writes, "write", take_over_failed),
    "ids that move answer nobody": (Writes, "give_up", lambda *_: None),
    "loaded transactions are not resumed": (Context, "add_all", load_and_forget),
    "the first marker completes the transaction": (Ending, "markers_written", complete_early),
    "reports about earlier transactions count": (
        Ending,
        "_ending",
        lambda ending, ended: ending._context.ids.get(ended.transactional_id),
    ),
    "completions that failed are not tried again": (Ending, "_complete", complete_once),
    "aborts do not raise the epoch": (
        TransactionalId,
        "raise_fence",
        lambda txn: txn.stored.producer_epoch,
    ),
    "epochs are not checked": (TransactionCoordinator, "_find_for", find_any_epoch),
}


@pytest.mark.parametrize("bug", PLANTED)
def test_generated_schedules_find_a_planted_bug(bug, monkeypatch):
    owner, name, broken = PLANTED[bug]
    monkeypatch.setattr(owner, name, broken)

    with pytest.raises((AssertionError, LookupError, RuntimeError)):  # noqa: PT012
        for seed in range(40):
            TransactionStorm(seed).run()
