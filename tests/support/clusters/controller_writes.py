"""An audit of all writes in ZooKeeper's transaction log: two controllers must never write at the same time.

`audit(transactions(...)).faults` is empty when

- every election is one transaction that creates `/controller` and raises `/controller_epoch` by one; if there is a
  controller, the transaction first deletes its node (a takeover);
- every write that only a controller may make is in a multi that begins with the check of `/controller_epoch`
  and comes from the session that won the latest election; the states it writes carry that epoch;
- a partition's leader changes only the ISR in a state node, and never brings back an older leader epoch.

`_UNFENCED` lists the writes that need no check of the controller epoch. Sessions that never registered a broker
belong to operators: their writes change the state of the audit, but are never faults.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from support.zookeeper.transaction_log import (
    CHECK,
    CREATE,
    DELETE,
    OPEN_SESSION,
    SET,
    Operation,
    Transaction,
)

from minikafka.zookeeper.nodes import layout

_STATE_NODE: Final = re.compile(r"/brokers/topics/[^/]+/partitions/\d+/state")
_REGISTRATION: Final = re.compile(r"/brokers/ids/\d+")
_UNFENCED: Final = (
    (CREATE, re.compile(r"/isr_change_notification/isr_change_\d+")),
    (CREATE, re.compile(r"/log_dir_event_notification/log_dir_event_\d+")),
    (SET, re.compile(layout.PRODUCER_ID_BLOCK)),
    (CREATE, re.compile(r"/cluster(/id)?")),
    (CREATE, re.compile(r"/minikafka(/coordination)?")),
    (CREATE, re.compile(layout.CONTROLLER_EPOCH)),
    (CREATE, re.compile(r"/(brokers|config|admin)")),
    *((CREATE, re.compile(re.escape(path))) for path in layout.PERSISTENT),
)
"""(operation, path) of the writes that any broker may make at any time, apart from its registration and its ISRs."""
_ANY_BROKER: Final = re.compile(r"/(config|admin)/.+")
"""Nodes that are written for administrators' requests: fenced, but not only in the controller's session."""
_OTHER_SYSTEMS: Final = re.compile(r"/zookeeper(/.*)?")


@dataclass(slots=True)
class Audit:
    """The state of the node tree after the transactions added so far, and the faults found in the transactions."""

    faults: list[str] = field(default_factory=list)
    """A description of every write that breaks a rule, with its zxid, session and epoch."""
    elections: int = 0
    """Number of elections."""
    writes: Counter[int] = field(default_factory=Counter)
    """Number of checked transactions in each controller epoch."""
    brokers: set[int] = field(default_factory=set)
    """Ids of the sessions that registered a broker."""
    epoch: int = 0
    epoch_version: int = 0
    controller: int | None = None
    """The session that won the latest election; it may write until the next one."""
    has_controller: bool = False
    """True while `/controller` exists."""
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    """State nodes by path."""

    def add(self, transaction: Transaction) -> None:
        """Check the next transaction. A transaction that ZooKeeper refused is ignored."""
        if not transaction.refused:
            self._judge(transaction)

    def _judge(self, transaction: Transaction) -> None:
        if any(op.path == layout.CONTROLLER and op.type == CREATE for op in transaction.ops):
            self._election(transaction)
            return
        is_end_of_session = not transaction.ops[0].path
        checked = self._is_checked(transaction)
        for op in transaction.ops:
            if op.type not in (CHECK, OPEN_SESSION) and op.path and not is_end_of_session:
                self._operation(transaction, op, checked)
            if op.path == layout.CONTROLLER and op.type == DELETE:
                self.has_controller = False

    def _election(self, transaction: Transaction) -> None:
        made = next(op for op in transaction.ops if op.type == CREATE)
        raised = [
            op for op in transaction.ops if (op.type, op.path) == (SET, layout.CONTROLLER_EPOCH)
        ]
        deletes = any((op.type, op.path) == (DELETE, layout.CONTROLLER) for op in transaction.ops)
        if self.has_controller and not deletes:
            self._complain(transaction, "/controller was there already")
        if not made.ephemeral or not raised or int(raised[0].data) != self.epoch + 1:
            self._complain(transaction, f"no election of epoch {self.epoch + 1}")
            return
        self.controller, self.has_controller = transaction.session, True
        self.epoch, self.epoch_version = self.epoch + 1, raised[0].version
        self.elections += 1

    def _is_checked(self, transaction: Transaction) -> bool:
        first = transaction.ops[0]
        if not transaction.begins_with_check_of(layout.CONTROLLER_EPOCH):
            return False
        if first.version != self.epoch_version:
            self._complain(transaction, f"a check of version {first.version} was passed")
        self.writes[self.epoch] += 1
        return True

    def _operation(self, transaction: Transaction, op: Operation, checked: bool) -> None:
        if _STATE_NODE.fullmatch(op.path):
            self._state(transaction, op, checked)
        elif _REGISTRATION.fullmatch(op.path) or _OTHER_SYSTEMS.fullmatch(op.path):
            return
        elif not checked:
            if not any(op.type == kind and path.fullmatch(op.path) for kind, path in _UNFENCED):
                self._complain(transaction, f"{op.type} of {op.path} without the check")
        elif transaction.session != self.controller and not _ANY_BROKER.fullmatch(op.path):
            self._complain(
                transaction, f"{op.type} of {op.path} by a session that is not the controller's"
            )

    def _state(self, transaction: Transaction, op: Operation, checked: bool) -> None:
        before = self.states.get(op.path)
        if op.type == DELETE:
            self.states.pop(op.path, None)
            after = None
        else:
            after = self.states[op.path] = json.loads(op.data)
        if checked:
            if transaction.session != self.controller:
                self._complain(
                    transaction, f"{op.path} written by a session that is not the controller's"
                )
            if after is not None and after["controller_epoch"] != self.epoch:
                self._complain(transaction, f"{op.path} does not carry epoch {self.epoch}")
        elif before is None or after is None or _all_but_isr(before) != _all_but_isr(after):
            self._complain(transaction, f"{op.path}: {before} became {after} without the check")

    def _complain(self, transaction: Transaction, text: str) -> None:
        if transaction.session not in self.brokers:
            return
        where = f"zxid {transaction.zxid:#x}, session {transaction.session:#x}, epoch {self.epoch}"
        self.faults.append(f"{where}: {text}")


def _all_but_isr(state: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in state.items() if name != "isr"}


def audit(history: Iterable[Transaction]) -> Audit:
    """Return the audit of all transactions; they must begin with the first transaction of the server."""
    history = list(history)
    result = Audit(brokers={one.session for one in history if _registers(one)})
    for transaction in history:
        result.add(transaction)
    return result


def _registers(transaction: Transaction) -> bool:
    return any(op.type == CREATE and _REGISTRATION.fullmatch(op.path) for op in transaction.ops)
