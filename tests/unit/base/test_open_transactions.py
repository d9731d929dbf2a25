"""The items of open transactions."""

from __future__ import annotations

from minikafka.base.model import TopicPartition
from minikafka.base.open_transactions import OpenTransactions, holding


def test_items_of_a_transaction_are_returned_at_its_end() -> None:
    open_: OpenTransactions[str] = OpenTransactions()
    for producer_id, item in ((7, "a"), (8, "b"), (7, "c")):
        open_.add(producer_id, item)
    assert (7 in open_, 9 in open_, list(open_)) == (True, False, ["a", "c", "b"])
    assert open_.end(7) == ["a", "c"]
    assert (7 in open_, list(open_), open_.end(7)) == (False, ["b"], [])


def test_item_is_removed_only_from_an_open_transaction() -> None:
    open_: OpenTransactions[str] = OpenTransactions()
    open_.add(7, "a")
    open_.add(7, "b")
    assert (open_.remove(7, "a"), open_.remove(7, "a"), open_.remove(8, "b")) == (
        True,
        False,
        False,
    )
    assert open_.end(7) == ["b"]
    assert not open_.remove(7, "b")


def test_reason_for_waiting_names_what_is_known_and_the_next_command() -> None:
    tp = TopicPartition("t", 0)
    text = "t-0: records from offset 5 on are held back by an open transaction"
    assert holding(tp, 5) == f"{text}; `minikafka why t-0` names it"
    known = holding(tp, 5, 7, 4, "orders")
    assert known.startswith(f"{text} of transactional id orders (producer 7, since offset 4); `")
    assert "`minikafka transactions fence orders`" in known
    assert "`minikafka why t-0`" in holding(tp, 5, 7, 4, is_complete=False)
    hanging = holding(tp, 5, 7, 4)
    assert hanging.endswith("`minikafka transactions abort t-0 --start-offset 4` aborts it")
