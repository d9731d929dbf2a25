"""The history of a partition in sentences: events, decisions of the controller, and durations.

The input is the lines from `broker.ledger.reader`. The module does no I/O. Invariant: a sentence states only facts from
the ledger. If no line shows when a broker died, the sentence states only the end of the broker's session.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from minikafka.base.model import TopicPartition
from minikafka.broker.ledger.record import (
    BROKER,
    DECISION,
    EFFECT,
    EVENT,
    ISR,
    STATE_CHANGE,
    STEP,
    WRITE,
)
from minikafka.tools.explain.past import (
    WrittenState,
    assignments_in,
    became_leader,
    suspects_of,
    written_states,
)
from minikafka.tools.explain.trace import Chain, Line, ids, refusal_of

_NOBODY: Final = -1
_FINAL_STEP: Final = "reassignment.B6"
"""The controller's step that writes the final replicas of a reassignment to the topic node."""


class _End(NamedTuple):
    """The end of a broker's registration. `time`: Unix ms, None if unknown.

    `words`: the predicate of a sentence about the broker, for example "stopped at 12:00:00.000".
    """

    words: str
    time: int | None = None


class _Leadership(NamedTuple):
    """A leadership in the mode leaders. `since`: time (Unix ms) at which its cause began. `is_later`: not the first."""

    broker: int
    since: int
    is_later: bool


class Story:
    """Writer of the sentences about one partition's causal chains."""

    def __init__(self, lines: Sequence[Line], tp: TopicPartition) -> None:
        self._tp = tp
        self._facts = [line for line in lines if line["kind"] == BROKER]
        self._last_words = _Newest(lines)
        self._events = [line for line in lines if line["kind"] == EVENT and "brokers" in line]
        self._before = _live_before(self._events)
        self._led: _Leadership | None = None
        """The latest leadership in the mode leaders."""

    def summarize(self, history: Sequence[Chain]) -> None:
        """Set the `summary` of each causal chain in `history`, which is sorted from the oldest to the newest.

        The summary of a chain without a noteworthy change is "".
        """
        state: WrittenState | None = None
        for chain in history:
            states = sorted(written_states(chain.lines, self._tp), key=lambda s: s.zxid)
            chain.summary = self._sentence(chain, state, states)
            state = states[-1] if states else state

    def endings(
        self, read_ms: int, answering: Collection[int], *, has_every_ledger: bool = True
    ) -> list[str]:
        """Return sentences about brokers that have ended, but were alive at the last event in the ledgers.

        `read_ms`: time (Unix ms) at which the ledgers were read. `answering`: the brokers that answer now.
        `has_every_ledger`: False if only the ledgers of brokers that answer were read.
        """
        last = self._events[-1]["brokers"] if self._events else self._registered()
        away = [broker for broker in map(int, last) if broker not in answering]
        ends = {broker: self._end_since_start(broker) for broker in away}
        stopped = {broker: end["stopped"] for broker, end in ends.items() if "stopped" in end}
        found = []
        if stopped:
            controlled = [broker for broker, line in stopped.items() if line["controlled"]]
            at_once = [broker for broker in stopped if broker not in controlled]
            times = {broker: line["time"] for broker, line in stopped.items()}
            found += _stopped(controlled, times, "by a controlled shutdown")
            found += _stopped(at_once, times, "cleanly, without handing over leaderships")
        for broker in away:
            if broker in stopped:
                continue
            if "stopping" in ends[broker]:
                began = _clock(ends[broker]["stopping"]["time"])
                found.append(
                    f"broker {broker} began to stop at {began}; no line shows that it finished"
                )
            else:
                found.append(self._loss(broker, read_ms, has_every_ledger))
        return found

    def _registered(self) -> list[str]:
        """Return the ids of the brokers that have registered. In the mode leaders no event lists the live brokers."""
        facts = (line for line in self._facts if line["fact"] == "registered")
        return [str(broker) for broker in sorted({line["broker"] for line in facts})]

    def _end_since_start(self, broker: int) -> dict[str, Line]:
        """Return the lines `stopping` and `stopped` that the broker has written since its last start."""
        found: dict[str, Line] = {}
        for line in self._facts:
            if line["broker"] == broker and line["fact"] in ("started", "registered"):
                found.clear()
            elif line["broker"] == broker and line["fact"] in ("stopping", "stopped"):
                found[line["fact"]] = line
        return found

    def _loss(self, broker: int, read_ms: int, has_every_ledger: bool) -> str:
        """Return the sentence about a broker that ended without a line about its end."""
        spoke = self._last_words.before(broker, _FOREVER)
        known = self._events[-1]["time"] if self._events else 0
        since = max(known, spoke) - _CLOCK_SLACK_MS
        times = [
            line["time"]
            for line in self._facts
            if line["fact"] == "connection lost" and line["to"] == broker and line["time"] > since
        ]
        if times:
            lives = f"the ledgers up to {_clock(read_ms)} do not show that its session ended"
            return f"broker {broker} was lost at {_clock(min(times))}; {lives}"
        if not has_every_ledger:
            return f"broker {broker} does not answer, and its ledger was not seen"
        if not spoke:
            return f"broker {broker} does not answer, and there is no line in its ledger"
        wrote = f"its last line in the ledger is from {_clock(spoke)}"
        return f"broker {broker} does not answer; {wrote}, and no line shows that it stopped"

    def _sentence(
        self, chain: Chain, before: WrittenState | None, states: list[WrittenState]
    ) -> str:
        first = chain.lines[0]
        if first["kind"] == ISR:
            return _isr_change(first)
        if first["kind"] == STATE_CHANGE:
            return self._state_change(first)
        if first["kind"] == BROKER:
            return f"broker {first['broker']}: {first['fact']}"
        if first["kind"] != EVENT:
            return ""
        ends = self._ends(first) if "brokers" in first else {}
        leader = before.leader if before is not None else _NOBODY
        lost = ends[leader].time if leader in ends else None
        if leader in suspects_of(first):
            lost = self._died_at(leader, first["time"])
        outcome = [*self._outcome(chain, before, states, lost), *_results(chain, self._tp)]
        cause = self._cause(chain)
        has_news = bool(outcome) or first["event"] in _ALWAYS_TOLD
        return "; ".join([*cause, *outcome]) if has_news else ""

    # The mode leaders.

    def _state_change(self, line: Line) -> str:
        """Return the sentence about an election, the start or the end of a leadership, or a refusal; else ""."""
        broker, fact = line["broker"], line["fact"]
        if fact != "move":
            return str(line["text"]) if fact in ("refuse", "refused", "illegal") else ""
        if became_leader(line):
            return self._elected_itself(broker, line["time"])
        led = self._led
        if line["target"] == "leading":
            since = line["time"] if led is None or led.broker != broker else led.since
            again = " again" if led is not None and led.is_later else ""
            after = _seconds(line["time"] - since)
            return f"leader {broker} opened in epoch {line['epoch']}; clients could write{again} after {after}"
        if line["source"] in ("opening", "leading"):
            return f"broker {broker} stopped leading in epoch {line['epoch']}"
        return ""

    def _elected_itself(self, broker: int, time: int) -> str:
        former = self._led
        lost = None
        if former is not None and former.broker != broker:
            lost = self._died_at(former.broker, time)
        self._led = _Leadership(broker, time if lost is None else lost, former is not None)
        elected = f"broker {broker} elected itself the leader"
        if former is None or lost is None:
            return elected
        return f"leader {former.broker} was lost at {_clock(lost)}; {elected}"

    # Causes.

    def _cause(self, chain: Chain) -> list[str]:
        event = chain.lines[0]
        if event["event"] in _REASSIGNMENTS:
            return self._reassigned(chain)
        describe_cause = _CAUSES.get(event["event"])
        return describe_cause(self, event) if describe_cause is not None else []

    def _brokers_changed(self, line: Line) -> list[str]:
        before, now = self._before.get(line["cause"], {}), line["brokers"]
        words = [f"broker {broker} {end.words}" for broker, end in self._ends(line).items()]
        return words + [f"broker {id_} started" for id_ in now if before and id_ not in before]

    def _elected(self, line: Line) -> list[str]:
        words = [f"broker {broker} {end.words}" for broker, end in self._ends(line).items()]
        epoch = line["cause"].partition("-")[0]
        words.append(f"broker {line['broker']} became the controller of epoch {epoch}")
        return words + [f"broker {suspect} refused a connection" for suspect in suspects_of(line)]

    def _suspected(self, line: Line) -> list[str]:
        died = self._died_at(line["of"], line["time"])
        at = "" if died is None else f" at {_clock(died)}"
        return [f"broker {line['of']} probably died{at}: {line['evidence']}"]

    def _topics_changed(self, line: Line) -> list[str]:
        if self._tp.topic in (line.get("added") or {}):
            return ["the topic was created"]
        return ["the topic was removed"] if self._tp.topic in line.get("removed", ()) else []

    def _reassigned(self, chain: Chain) -> list[str]:
        refusals = (refusal_of(line, self._tp) for line in chain.lines)
        refusal = next(filter(None, refusals), "")
        for topic, number, replicas in chain.lines[0].get("targets", ()):
            if (topic, number) != self._tp:
                continue
            if replicas is None:
                what = "a request to cancel a reassignment"
                return [
                    f"{what} was rejected: {refusal}" if refusal else "a reassignment was cancelled"
                ]
            if refusal:
                return [f"a reassignment to the replicas {ids(replicas)} was rejected: {refusal}"]
            return [f"a reassignment was requested: replicas {ids(replicas)}"]
        return []

    def _election_requested(self, line: Line) -> list[str]:
        return [f"{'an unclean' if line['unclean'] else 'a preferred'} election was requested"]

    # The end of a broker.

    def _ends(self, event: Line) -> dict[int, _End]:
        """Return the registrations that ended between the previous event and this event, by broker id."""
        before, now = self._before.get(event["cause"], {}), event["brokers"]
        return {
            int(id_): self._end_of(int(id_), epoch, event)
            for id_, epoch in before.items()
            if now.get(id_) != epoch
        }

    def _end_of(self, broker: int, epoch: int, event: Line) -> _End:
        facts = self._facts_of_registration(broker, epoch)
        restart, cut = facts.get("started"), facts.get("session lost")
        has_restarted = restart is not None and restart <= event["time"] + _CLOCK_SLACK_MS
        until = restart if restart is not None and has_restarted else event["time"]
        stopping = facts.get("stopping", facts.get("stopped"))
        if stopping is not None and stopping <= until + _CLOCK_SLACK_MS:
            verb = "stopped" if "stopped" in facts else "began to stop"
            return _End(f"{verb} at {_clock(stopping)}", stopping)
        died = self._died_at(broker, until)
        verb = "was paused or cut off" if cut is not None else "died"
        at = "" if died is None else f" at {_clock(died)}"
        if has_restarted:
            after = "" if died is None else f" after {_seconds(until - died)}"
            return _End(f"{verb}{at} and started again{after}", died)
        if died is not None:
            return _End(f"{verb}{at}; {_seconds(until - died)} until its session expired", died)
        is_known = restart is not None or cut is not None
        return _End(f"{verb if is_known else 'died or did not answer'}; its session expired")

    def _facts_of_registration(self, broker: int, epoch: int) -> dict[str, int]:
        """Return the time (Unix ms) of each fact, such as `started`, in the broker's ledger lines.

        Only lines after the broker's registration with this epoch are used. If a fact occurs more than once, the
        time is that of its first line. If the broker started again later, the facts after `started` are left out.
        """
        live = (line["time"] for line in self._events if line["brokers"].get(str(broker)) == epoch)
        began = next(live)
        found: dict[str, int] = {}
        for line in self._facts:
            if line["broker"] == broker and line["time"] > began:
                if "started" in found:
                    break
                found.setdefault(line["fact"], line["time"])
        return found

    def _died_at(self, broker: int, until: int) -> int | None:
        """Return the time (Unix ms) at which the broker died; None if unknown.

        The time is that of the first line in which another broker lost the connection to this broker. This method
        searches the other brokers' lines from the time of this broker's last line to `until` (Unix ms), with a
        tolerance of `_CLOCK_SLACK_MS`.
        """
        alive = self._last_words.before(broker, until)
        times = [
            line["time"]
            for line in self._facts
            if line["fact"] == "connection lost"
            and line["to"] == broker
            and alive - _CLOCK_SLACK_MS <= line["time"] <= until
        ]
        return min(times, default=None)

    # Outcomes.

    def _outcome(
        self,
        chain: Chain,
        before: WrittenState | None,
        states: list[WrittenState],
        lost: int | None,
    ) -> Iterator[str]:
        """Yield sentences about the controller's decisions on the leader and the ISR.

        `chain`: the ledger lines about one cause and its effects. `before`: the partition's state before the
        cause. `lost`: Unix ms at which the former leader died or stopped, None if unknown.
        """
        controller = f"controller {chain.lines[0]['broker']}"
        elected, former = None, before
        for state in states:
            known = before.leader if before is not None else _NOBODY
            if state.leader not in (known, _NOBODY):
                elected = state
                yield f"{controller} elected leader {state.leader} {_source(state, before)}"
            elif state.leader == _NOBODY != known:
                yield f"{controller} left the partition without a leader{_reason(chain)}"
            elif before is not None and set(before.isr) - set(state.isr):
                gone = ids(sorted(set(before.isr) - set(state.isr)))
                yield f"{controller} removed {gone} from the ISR, which is {ids(state.isr)} now"
            before = state
        if not states and _reason(chain):
            yield f"{controller} elected no leader{_reason(chain)}"
        if elected is not None:
            yield from self._readiness(chain, elected, former, lost)

    def _readiness(
        self, chain: Chain, state: WrittenState, former: WrittenState | None, lost: int | None
    ) -> Iterator[str]:
        """Yield sentences about when the new leader began to accept writes, and which writes it refuses."""
        for line in chain.lines:
            if line["kind"] != EFFECT or line["broker"] != state.leader or line.get("error"):
                continue
            for result in line.get("results", ()):
                if result["became"] == "leader" and result["leader_epoch"] >= state.leader_epoch:
                    since = chain.time if lost is None else lost
                    again = " again" if former is not None else ""
                    yield f"clients could write{again} after {_seconds(line['time'] - since)}"
                    if former is not None and len(former.isr) > len(state.isr) == 1:
                        yield "until another replica is in sync, acks=all works only with min.insync.replicas = 1"
                    return


# A mapping in each Story to methods of itself would be a reference cycle: a process that explains often would keep
# the ledger lines of many stories until a garbage collection.
_CAUSES: Final[Mapping[str, Callable[[Story, Line], list[str]]]] = {
    "BrokersChanged": Story._brokers_changed,
    "ControllerElected": Story._elected,
    "BrokerSuspected": Story._suspected,
    "SuspicionEnded": lambda _, line: [f"broker {line['of']} answered: it had not died"],
    "ControlledShutdownRequested": lambda _, line: [f"broker {line['of']} asked to shut down"],
    "TopicsChanged": Story._topics_changed,
    "AssignmentChanged": lambda _, line: ["partitions were added to the topic"],
    "DeletionsChanged": lambda _, line: ["the topic was marked for deletion"],
    "ElectionRequested": Story._election_requested,
    "PreferredElectionSubmitted": lambda _, line: ["a preferred leader election was requested"],
    "RebalanceDue": lambda _, line: ["the controller checked the balance of leaders"],
    "UncleanElectionEnabled": lambda _, line: ["unclean elections were allowed"],
    "LogDirsFailed": lambda _, line: ["a log directory failed"],
}
_REASSIGNMENTS: Final = frozenset({"ReassignmentsRequested", "ReassignmentsSubmitted"})
_ALWAYS_TOLD: Final = _REASSIGNMENTS | {"TopicsChanged", "DeletionsChanged"}
"""Events that get a sentence even if they changed neither leader nor ISR."""
_CLOCK_SLACK_MS: Final = 50
"""Maximum time between two lines of different brokers that may have been written in the reverse order."""
_FOREVER: Final = 2**63


class _Newest:
    """The times of each broker's ledger lines, to find a broker's newest line before a given time."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._times: dict[int, list[int]] = {}
        for line in lines:
            self._times.setdefault(line["broker"], []).append(line["time"])

    def before(self, broker: int, time: int) -> int:
        """Return the time of the broker's last line before `time`; 0 if there is no such line."""
        return max((at for at in self._times.get(broker, ()) if at < time), default=0)


def _live_before(events: Sequence[Line]) -> dict[str, Mapping[str, int]]:
    """Return the brokers that were alive before each event: event id -> broker id -> broker epoch."""
    found: dict[str, Mapping[str, int]] = {}
    live: Mapping[str, int] = {}
    for line in events:
        found[line["cause"]] = live
        live = line["brokers"]
    return found


def _stopped(brokers: Sequence[int], times: Mapping[int, int], how: str) -> list[str]:
    """Return the sentence about brokers that were stopped in the same way; [] without such brokers."""
    if not brokers:
        return []
    end = _clock(max(times[broker] for broker in brokers))
    if len(brokers) == 1:
        return [f"broker {brokers[0]} was stopped {how} at {end}"]
    return [f"brokers {ids(sorted(brokers))} were stopped {how}, the last one at {end}"]


def _isr_change(line: Line) -> str:
    """Return the sentence about an ISR change by the leader; "" if ZooKeeper did not accept the change."""
    if line["outcome"] != "ok":
        return ""
    before, after = set(line["before"]), set(line["isr"])
    verb, brokers = ("added", after - before) if after > before else ("removed", before - after)
    where = "to" if verb == "added" else "from"
    change = f"leader {line['broker']} {verb} {ids(sorted(brokers))} {where} the ISR"
    return f"{change}, which is {ids(line['isr'])} now"


def _source(state: WrittenState, before: WrittenState | None) -> str:
    """Return a phrase that states whether the new leader was in the ISR."""
    if before is None or state.leader in before.isr:
        return (
            f"from the ISR, which is {ids(state.isr)} now"
            if before
            else f"with ISR {ids(state.isr)}"
        )
    return f"from outside the ISR {ids(before.isr)} (unclean): acknowledged records may be lost"


def _reason(chain: Chain) -> str:
    """Return a phrase with the reason why the controller refused to elect a leader; "" if it did not refuse."""
    for line in reversed(chain.lines):
        is_about_leader = line["kind"] == DECISION and line["machine"] == "partition"
        if is_about_leader and line["verdict"] == "refuse":
            return f": it {line['reason']}"
    return ""


def _results(chain: Chain, tp: TopicPartition) -> Iterator[str]:
    """Yield a sentence if the chain completed a reassignment of the partition or the deletion of the topic."""
    path = f"/brokers/topics/{tp.topic}"
    step = ""
    for line in chain.lines:
        if line["kind"] == STEP:
            step = f"{line['operation']}.{line['step']}"
        if line["kind"] != WRITE or line["outcome"] != "ok":
            continue
        for operation in line["operations"]:
            if operation["path"] == path and operation["op"] == "delete":
                yield "the topic is deleted"
            elif operation["path"] == path and step == _FINAL_STEP:
                found = assignments_in(operation["data"]).get(tp.partition)
                if found is not None:
                    yield f"the reassignment is complete: replicas {ids(found.replicas)}"


def _seconds(duration_ms: int) -> str:
    """Format a duration: in seconds with one decimal from 1 s on, else in milliseconds."""
    return f"{duration_ms / 1000:.1f} s" if duration_ms >= 1000 else f"{max(duration_ms, 0)} ms"


def _clock(wall_ms: int) -> str:
    """Format Unix milliseconds as time of day in UTC."""
    return datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%H:%M:%S.%f")[:-3]
