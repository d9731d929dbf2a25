"""Invariants of the ledgers of all brokers, under all faults. They are checked at the end of cluster tests.

    from support.ledger.invariants import check_ledgers
    check_ledgers(cluster.directory.path)          # every broker's ledger below a cluster's data directory
    assert violations(lines) == []                 # lines of `minikafka.broker.ledger.reader.read_all`

Controller epochs never fall, and each epoch has one winner. Every write of a controller checks that
`/controller_epoch` still has the version from the controller's election. For each partition, leader epochs never fall,
a leader epoch has one leader, the leader is in the ISR, and the ISR is never empty (in decisions, writes and requests).
A broker that has carried out a request of a newer controller carries out none of an older controller until it restarts.
A request makes a replica in state New the leader only in leader epoch 0, which is the first epoch of a new partition.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter
from pathlib import Path
from typing import Any

from minikafka.broker.ledger.reader import name_of, read_all
from minikafka.broker.ledger.record import (
    DECISION,
    EFFECT,
    ELECTION,
    ISR,
    REQUEST,
    WRITE,
    partitions_of,
)

STATE = re.compile(r"^/brokers/topics/(?P<topic>[^/]+)/partitions/(?P<partition>\d+)/state$")
EPOCH_NODE = "/controller_epoch"
WON = ("won", "took over")
"""Outcomes of an election of the broker that is the controller afterwards."""
Line = Mapping[str, Any]
Tp = tuple[str, int]


def check_ledgers(data: str | Path) -> list[dict[str, Any]]:
    """Check the ledgers below the data directory; return their merged lines. Raises AssertionError on violations."""
    lines = read_all(sorted(Path(data).glob("broker-*-ledger")))
    found = violations(lines)
    assert not found, "\n".join(found)
    return lines


def violations(lines: Sequence[Line]) -> list[str]:
    """Return one sentence per violation of an invariant, with the names (broker#n) of the lines that show it."""
    return [
        *_controllers(lines),
        *_fences(lines),
        *_leaderships(lines),
        *_state_nodes(lines),
        *_leaders(lines),
        *_obedience(lines),
        *_new_replicas(lines),
    ]


def _controllers(lines: Sequence[Line]) -> Iterator[str]:
    winners: dict[int, Line] = {}
    for line in lines:
        if line["kind"] == ELECTION and line["outcome"] in WON:
            before = winners.setdefault(line["epoch"], line)
            if before is not line:
                yield f"epoch {line['epoch']} won twice: {name_of(before)}, {name_of(line)}"
    written = [
        (line["zxid"], int(operation["data"]), line)
        for line in lines
        if line["kind"] == WRITE and line["outcome"] == "ok"
        for operation in line["operations"]
        if operation["path"] == EPOCH_NODE and operation["op"] == "set"
    ]
    for (_, before, _), (_, after, line) in pairwise(sorted(written, key=itemgetter(0))):
        if after <= before:
            yield f"the controller epoch went from {before} to {after}: {name_of(line)}"


def _fences(lines: Sequence[Line]) -> Iterator[str]:
    """Yield a violation for each multi that does not check the right version of `/controller_epoch`.

    The right version is the one that the controller wrote at its election.
    """
    versions = {
        line["epoch"]: line["zk_version"]
        for line in lines
        if line["kind"] == ELECTION and line["outcome"] in WON
    }
    for line in lines:
        if line["kind"] != WRITE:
            continue
        check = line.get("check") or {}
        if check.get("path") != EPOCH_NODE:
            yield f"a write without the check of the controller epoch: {name_of(line)}"
        epoch, _, number = line["cause"].partition("-")
        wanted = versions.get(int(epoch)) if epoch else None
        if wanted is not None and number != "0" and check.get("version") != wanted:
            yield f"checked version {check.get('version')}, not {wanted}: {name_of(line)}"


def _leaderships(lines: Sequence[Line]) -> Iterator[str]:
    """Yield a violation for each ledger line that states an empty ISR, or a leader outside the ISR."""
    for line in lines:
        for leader, isr in _told(line):
            if not isr:
                yield f"an empty ISR: {name_of(line)}"
            elif leader >= 0 and leader not in isr:
                yield f"leader {leader} is not in the ISR {isr}: {name_of(line)}"


def _told(line: Line) -> Iterator[tuple[int, list[int]]]:
    if line["kind"] == DECISION and line.get("leader") is not None:
        yield line["leader"], line["isr"]
    elif line["kind"] == ISR:
        yield line["broker"], line["isr"]
    elif line["kind"] == REQUEST:
        for state in line["states"]:
            if "leader" in state:
                yield state["leader"], state["isr"]
    elif line["kind"] == WRITE:
        for _, data, _ in _states(line):
            yield data["leader"], data["isr"]


def _states(line: Line) -> Iterator[tuple[Tp, dict[str, Any], bool]]:
    """Yield (partition, state, True if the node is new) for each state node that a multi writes."""
    for operation in line["operations"]:
        match = STATE.match(operation["path"])
        if match and operation["data"]:
            tp = (match["topic"], int(match["partition"]))
            yield tp, json.loads(operation["data"]), operation["op"] == "create"


def _written(lines: Sequence[Line]) -> Iterator[tuple[int, Tp, int, int, bool, Line]]:
    """Yield one tuple for each accepted write of a partition state.

    The tuple: (zxid, partition, leader, leader epoch, True if the write created the state node, ledger line).
    """
    for line in lines:
        if line["kind"] == WRITE and line["outcome"] == "ok":
            for tp, data, new in _states(line):
                yield line["zxid"], tp, data["leader"], data["leader_epoch"], new, line
        elif line["kind"] == ISR and line["outcome"] == "ok" and line["zxid"] is not None:
            tp = (line["topic"], line["partition"])
            yield line["zxid"], tp, line["broker"], line["leader_epoch"], False, line


def _state_nodes(lines: Sequence[Line]) -> Iterator[str]:
    """Yield a violation for each write that lowers the leader epoch or names a second leader in the same epoch.

    The writes are compared in zxid order.
    """
    last: dict[Tp, tuple[int, int, Line]] = {}
    for _, tp, leader, epoch, new, line in sorted(_written(lines), key=itemgetter(0)):
        known = None if new else last.get(tp)
        if known is not None:
            known_leader, known_epoch, before = known
            where = f"{tp[0]}-{tp[1]}: {name_of(before)}, {name_of(line)}"
            if epoch < known_epoch:
                yield f"leader epoch fell from {known_epoch} to {epoch} of {where}"
            elif epoch == known_epoch and leader != known_leader:
                yield f"leaders {known_leader} and {leader} in epoch {epoch} of {where}"
        last[tp] = (leader, epoch, line)


def _leaders(lines: Sequence[Line]) -> Iterator[str]:
    """Yield a violation for each leader epoch of a partition in which two brokers became leader.

    A partition that was deleted and created again counts as another partition.
    """
    made: dict[Tp, int] = {}
    leaders: dict[tuple[Tp, int, int], Line] = {}
    for line in lines:
        if line["kind"] == WRITE and line["outcome"] == "ok":
            for tp, _, new in _states(line):
                made[tp] = made.get(tp, 0) + new
        elif line["kind"] == EFFECT:
            for result in line.get("results", ()):
                if result["became"] != "leader":
                    continue
                for tp in partitions_of(result["partitions"]):
                    key = (tuple(tp), made.get(tuple(tp), 0), result["leader_epoch"])
                    before = leaders.setdefault(key, line)
                    if before["broker"] != line["broker"]:
                        where = f"{name_of(before)}, {name_of(line)}"
                        yield f"two leaders of {tp} in epoch {result['leader_epoch']}: {where}"


def _new_replicas(lines: Sequence[Line]) -> Iterator[str]:
    """Yield a violation for each request that makes a New replica the leader with a leader epoch above 0 (G3)."""
    new: set[tuple[Any, ...]] = set()
    for line in lines:
        if line["kind"] == DECISION and line["verdict"] == "move" and line["machine"] == "replica":
            for tp in partitions_of(line["partitions"]):
                replica = (line["broker"], line["replica"], *tp)
                (new.add if line["to"] == "NewReplica" else new.discard)(replica)
        elif line["kind"] == REQUEST and line["request"] == "LeaderAndIsr":
            for state in line["states"]:
                for tp in partitions_of(state["partitions"]):
                    is_new = (line["broker"], line["to"], *tp) in new
                    if is_new and state["leader"] == line["to"] and state["leader_epoch"] > 0:
                        yield f"New replica {line['to']} of {tp} is told to lead: {name_of(line)}"


def _obedience(lines: Sequence[Line]) -> Iterator[str]:
    """Yield a violation for each request that a broker carried out after a request with a higher controller epoch.

    Only requests since the broker's last start are compared.
    """
    newest: dict[int, tuple[int, Line]] = {}
    received: defaultdict[tuple[int, str, str], deque[tuple[int, Line]]] = defaultdict(deque)
    for line in lines:
        if line["kind"] == "broker" and line["fact"] == "started":
            newest.pop(line["broker"], None)
        if line["kind"] != EFFECT or line.get("part", 1) != 1:
            continue
        which = (line["broker"], line["cause"], line["request"])
        known = newest.get(line["broker"], (-1, line))
        if line["phase"] == "received":
            received[which].append(known)
            continue
        epoch, before = received[which].popleft() if received[which] else known
        if line["phase"] != "completed" or line["error"]:
            continue
        if line["controller_epoch"] < epoch:
            yield f"obeyed an older controller: {name_of(before)}, {name_of(line)}"
        if line["controller_epoch"] >= known[0]:
            newest[line["broker"]] = (line["controller_epoch"], line)
