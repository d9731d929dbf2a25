"""Random schedules of producers, appends, markers and coordinator changes. `TransactionStorm` checks the invariants."""

from __future__ import annotations

import pytest
from support.transaction_storm import TransactionStorm

from minikafka.base.errors import ErrorCode
from minikafka.transactions.coordinator import TransactionCoordinator
from minikafka.transactions.ending import Ending
from minikafka.transactions.outbox import Outbox
from minikafka.transactions.state.picture import Picture
from minikafka.transactions.state.transactional_id import TransactionalId


@pytest.mark.parametrize("seed", range(40))
def test_transaction_invariants_hold_in_generated_schedules(seed):
    schedule = TransactionStorm(seed)

    schedule.run()

    assert schedule.answers > 100
    assert schedule.committed > 0
    assert schedule.aborted > 0


def succeed(outbox, token, error, now, real=Outbox.appended):
    real(outbox, token, 0, now)


def store_early(outbox, txn, metadata, on_written, real=Outbox.write):
    real(outbox, txn, metadata, on_written)
    if metadata is not None:
        outbox._picture.store(txn, metadata)


def load_and_forget(picture, load, real=Picture.add_all):
    real(picture, load)
    return []


def complete_early(ending, ended, partitions, real=Ending.markers_written):
    txn = ending._ending(ended)
    real(ending, ended, partitions if txn is None else list(txn.remaining))


def find_any_epoch(core, request):
    found = core._picture.find(request.transactional_id)
    return (found or ErrorCode.INVALID_PRODUCER_ID_MAPPING) if isinstance(found, int) else found


PLANTED = {
    "records are in the picture before their append": (Outbox, "write", store_early),
    "appends that failed are taken over": (Outbox, "appended", succeed),
    "ids that move answer nobody": (Outbox, "drop", lambda *_: None),
    "loaded transactions are not resumed": (Picture, "add_all", load_and_forget),
    "the first marker completes the transaction": (Ending, "markers_written", complete_early),
    "reports about earlier transactions count": (
        Ending,
        "_ending",
        lambda ending, ended: ending._picture.ids.get(ended.transactional_id),
    ),
    "completions that failed are not tried again": (Ending, "_completed", lambda *_: None),
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
