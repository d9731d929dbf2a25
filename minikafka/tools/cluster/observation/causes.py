"""The root causes of a cluster's problems, each with the command that mends it; for all commands that explain or wait.

`causes_of` depends only on `Sights`, so that tests need no cluster. Invariants: a cause states only what was observed.
A process that is down or paused is a cause, even if another cause explains it. A broker without a ZooKeeper session is
no cause if ZooKeeper itself does not serve.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from minikafka.base.coordination import LEADERS
from minikafka.base.model import NO_EPOCH, TopicPartition
from minikafka.base.names import GROUP_TOPIC, listed
from minikafka.tools.cluster.observation.links import (
    broken_links,
    latest_reports,
    link_sentences,
)
from minikafka.tools.cluster.observation.sights import (
    CLEAN_END,
    DOWN,
    FAILED,
    PAUSED,
    REFUSED,
    RUNS,
    UNREACHABLE,
    UNTOLD,
    BrokerSight,
    ProcessSight,
    Sights,
)
from minikafka.tools.cluster.observation.state import CONNECTED, active_controller, claims_of

_ERROR: Final = re.compile(r"error|exception|fail|severe|cannot|denied|in use", re.IGNORECASE)
"""Words that show that the last line of ZooKeeper's log says why ZooKeeper ended."""
_HALTED: Final = "so nothing can be elected, created or changed"
_SHOWN: Final = 5
"""Maximum number of partitions in one cause."""
_REPLACE: Final = (
    "replace the damaged replica, as docs/damage.md describes, if another replica is in sync"
)
_SPACE: Final = ("No space left on device", "Disk quota exceeded")
_TOO_LARGE: Final = "File too large"
_WRITABLE: Final = ("Read-only file system", "Permission denied", "Operation not permitted")


@dataclass(frozen=True, slots=True)
class Cause:
    """One root cause. `text`: the facts. `remedy`: the command that mends it. `broker`: the broker that it concerns."""

    name: str
    text: str
    remedy: str = ""
    broker: int | None = None
    between: tuple[int, ...] = ()
    """The brokers at the ends of a link that does not work."""

    @property
    def sentence(self) -> str:
        """The facts and the remedy as one text."""
        return f"{self.text}; {self.remedy}" if self.remedy else self.text

    def as_json(self) -> dict[str, Any]:
        """Return the cause as JSON-able values."""
        return {
            "name": self.name,
            "text": self.text,
            "remedy": self.remedy,
            "broker": self.broker,
        }


@dataclass(frozen=True, slots=True)
class Commands:
    """Returns the commands that remedies name. `where`: options that name the cluster, with a space in front, or "".

    `is_remote`: the cluster is elsewhere, and these commands run on the machines of its processes.
    """

    where: str = ""
    is_attached: bool = False
    is_remote: bool = False

    def up(self, effect: str) -> str:
        """Return the remedy that starts ZooKeeper and every broker that is down, and resumes the paused ones."""
        if self.is_attached:
            return f"start_zookeeper() and start() of the program that runs the cluster {effect}"
        return f"`minikafka up{self.where}` {effect}"

    def recover(self) -> str:
        """Return the commands that rebuild lost data of ZooKeeper; the text of the cause names the other way out."""
        return f"`minikafka down{self.where}`, then `minikafka zk recover{self.where}`, rebuilds it"

    def zookeeper(self, command: str, effect: str) -> str:
        """Return the remedy for ZooKeeper: `minikafka COMMAND zookeeper`, then its effect."""
        return f"`minikafka {command} zookeeper{self.where}` {effect}"

    def of_broker(self, command: str, broker: int, effect: str = "") -> str:
        """Return the remedy for one broker: `minikafka COMMAND ID`, then its effect."""
        where = "" if self.is_remote else self.where
        place = " on its machine" if self.is_remote else ""
        return f"`minikafka {command} {broker}{where}`{place}{effect and ' '}{effect}"


def causes_of(seen: Sights, where: str = "") -> list[Cause]:
    """Return the root causes of the cluster's problems, those that have the largest effects first."""
    commands = Commands(where, seen.is_attached, seen.is_remote)
    brokers = seen.brokers.values()
    zookeeper = seen.zookeeper.process
    if all(broker.process.state == DOWN for broker in brokers) and (
        zookeeper is None or zookeeper.state == DOWN
    ):
        return [*_all_down(seen, commands)]
    if seen.proxy_is_gone:
        text = "the proxy of faults has ended: nobody reaches the ports of brokers and of ZooKeeper"
        return [Cause("proxy-down", text, commands.up("starts it again"))]
    found = [*_zookeeper(seen, commands)]
    for broker in brokers:
        found += _directories(broker, commands)
    if seen.zookeeper.lost:
        return found  # no broker can be started
    for broker in brokers:
        found += _broker(broker, seen, commands, zookeeper_serves=not seen.zookeeper_is_away)
    found += [*_links(seen), *_zombies(seen, commands), *_zombie_leaders(seen, commands)]
    return [*found, *_skipped(seen), *_removed(seen, commands), *_controller(seen)]


def _links(seen: Sights) -> Iterator[Cause]:
    """Yield a cause for each link of the network that does not work, unless the process at its end is the cause."""
    away = {id_ for id_, one in seen.brokers.items() if one.process.state in (DOWN, PAUSED)}
    reports = latest_reports(seen.answers.values())
    known = [
        one
        for one in broken_links(reports, away)
        # The state of a broker's own session is a cause of its own, and ZooKeeper's state explains those of all.
        if one.target is not None or not (one.source in seen.answers or seen.zookeeper_is_away)
    ]
    for brokers, text in link_sentences(known, reports):
        yield Cause("link-broken", text, "check the network and firewalls there", None, brokers)


def _zombies(seen: Sights, commands: Commands) -> Iterator[Cause]:
    """Yield a cause for each broker that claims to be the controller although another one was elected after it."""
    claims = claims_of(seen.answers)
    active = active_controller(seen.answers, seen.elected)
    newest = max((answer["controller_epoch"] for answer in seen.answers.values()), default=NO_EPOCH)
    for broker, epoch in claims.items():
        if seen.coordination == LEADERS or broker == active:
            continue
        text = f"broker {broker} is a zombie controller: it claims to be the controller in epoch {epoch}, but "
        if active is not None:
            text += f"broker {active} is the controller in epoch {claims[active]}"
        else:
            text += f"other brokers know epoch {newest}"
        if seen.elected is not None:
            text += f", and ZooKeeper names broker {seen.elected}"
        remedy = f"its requests and writes are refused; if it lasts, {commands.of_broker('restart', broker)}"
        yield Cause("zombie-controller", text, remedy, broker)


def _zombie_leaders(seen: Sights, commands: Commands) -> Iterator[Cause]:
    """Yield a cause for each broker that claims to lead partitions of which another broker leads a newer epoch."""
    leaders: defaultdict[TopicPartition, dict[int, int]] = defaultdict(dict)
    for broker, answer in seen.answers.items():
        for row in answer.get("replicas", ()):
            if row.get("role") == "leader":
                tp = TopicPartition(row["topic"], row["partition"])
                leaders[tp][broker] = row["leader_epoch"]
    outdated: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for tp, epochs in leaders.items():
        for broker, epoch in epochs.items():
            if epoch < max(epochs.values()):
                outdated[broker].append(tp)
    for broker, partitions in sorted(outdated.items()):
        text = f"broker {broker} claims to lead {listed(partitions, _SHOWN)}, but another broker leads in a newer epoch"
        remedy = f"it acknowledges no record with acks=all; if it lasts, {commands.of_broker('restart', broker)}"
        yield Cause("zombie-leader", text, remedy, broker)


def _skipped(seen: Sights) -> Iterator[Cause]:
    """Yield a cause for each batch of records that a coordinator could not read when it loaded its state."""
    for broker, answer in seen.answers.items():
        for batch in answer.get("skipped_batches", ()):
            yield Cause("corrupt-records", skipped_text(broker, batch), _REPLACE, broker)


def skipped_text(broker: int, batch: Mapping[str, Any]) -> str:
    """Return the sentence about a batch that the coordinator on a broker has skipped."""
    what = "committed offsets" if batch["topic"] == GROUP_TOPIC else "transactions"
    return (
        f"broker {broker} coordinates without the records of {batch['topic']}-{batch['partition']} at offset "
        f"{batch['offset']} in {batch['file']}, which it cannot read ({batch['error']}): {what} may be older or missing"
    )


def _removed(seen: Sights, commands: Commands) -> Iterator[Cause]:
    """Yield a cause for each broker that a smaller cluster no longer includes, if it still has replicas."""
    rows = (row for answer in seen.answers.values() for row in answer.get("replicas", ()))
    used = {replica for row in rows for replica in row["replicas"]}
    for broker in sorted(used.intersection(seen.retired)):
        text = f"broker {broker} was removed from the cluster, but still has replicas"
        more = f"`minikafka up --brokers {max(seen.retired)}{commands.where}` adds it again"
        yield Cause("broker-removed", text, more, broker)


def _all_down(seen: Sights, commands: Commands) -> Iterator[Cause]:
    full = dict.fromkeys(path for broker in seen.brokers.values() for path in broker.process.full)
    if seen.zookeeper.lost:
        yield Cause("zookeeper-lost", seen.zookeeper.lost, commands.recover())
        return
    yield Cause(
        "cluster-down", "the cluster is down: it has no process", commands.up("starts it again")
    )
    for path in full:
        yield _full(path)
    for broker in seen.brokers.values():
        if failure := failure_in(broker.process):
            yield Cause("broker-failed", f"broker {broker.id} ended: {failure}", "", broker.id)


def _full(path: str) -> Cause:
    text = f"the file system of {path} is full (No space left on device)"
    return Cause("disk-full", text, "free space there")


def _zookeeper(seen: Sights, commands: Commands) -> Iterator[Cause]:
    address, process, failure = (
        seen.zookeeper.address,
        seen.zookeeper.process,
        seen.zookeeper.failure,
    )
    if seen.zookeeper.lost:
        yield Cause("zookeeper-lost", seen.zookeeper.lost, commands.recover())
        return
    if process is None:
        if failure:
            text = f"ZooKeeper at {address} does not serve: {failure}, {_HALTED}"
            own = "look at it on its machine"
            remedy = own if seen.is_remote else "start it: it does not belong to this cluster"
            yield Cause("zookeeper-silent", text, remedy)
        return
    for path in process.missing:
        text = (
            f"the data directory {path} of ZooKeeper does not exist any more, although ZooKeeper runs: it can store "
            "nothing more there, and its data are lost when it ends"
        )
        yield Cause("directory-removed", text, "restore the directory before ZooKeeper ends")
    if process.state == DOWN:
        yield _zookeeper_down(process, commands)
    elif process.state == PAUSED:
        text = f"ZooKeeper is paused (SIGSTOP, pid {process.pid}), {_HALTED}"
        yield Cause("zookeeper-paused", text, commands.zookeeper("resume", "lets it continue"))
    elif failure:
        text = f"ZooKeeper at {address} runs (pid {process.pid}) but does not serve: {failure}, {_HALTED}"
        yield Cause("zookeeper-silent", text, commands.zookeeper("restart", "starts it again"))


def _zookeeper_down(process: ProcessSight, commands: Commands) -> Cause:
    failure = failure_in(process)
    reason = f"it ended with the error: {failure}" if failure else "it has no process"
    text = f"ZooKeeper is down: {reason}, {_HALTED}"
    remedy = commands.up("starts it again")
    if process.full:
        text += f"; the file system of {process.full[0]} is full (No space left on device)"
        remedy = f"free space there, then {remedy}"
    if process.taken:
        text += f"; another process uses its port {process.taken[0]}"
        remedy = f"end the process that listens there, then {remedy}"
    if not failure and _ERROR.search(process.last_line):
        text += f"; its log ends: {process.last_line} ({process.log})"
    return Cause("zookeeper-down", text, remedy)


def _directories(broker: BrokerSight, commands: Commands) -> Iterator[Cause]:
    """Yield the failed log directories of a broker, and those on a full file system that has not failed yet."""
    offline = broker.answer.get("offline_directories", {}) if broker.answer else {}
    for path, error in offline.items():
        text = f"the log directory {path} of broker {broker.id} is offline: {error or 'it failed'}"
        mend = f"{_mend(error)}, then " + commands.of_broker("restart", broker.id)
        yield Cause("directory-failed", text, mend, broker.id)
    for path in broker.process.missing:
        if path not in offline:
            text = f"the log directory {path} of broker {broker.id} does not exist any more, although the broker runs"
            mend = (
                "restore it if you moved it; else "
                + commands.of_broker("restart", broker.id)
                + " makes an empty one and copies the replicas that other brokers have"
            )
            yield Cause("directory-removed", text, mend, broker.id)
    for path in broker.process.full:
        if path not in offline and broker.process.state != DOWN:
            found = _full(path)
            text = f"{found.text}: broker {broker.id} loses it at its next write"
            yield Cause(found.name, text, found.remedy, broker.id)


def _mend(error: str) -> str:
    if error in _SPACE:
        return "free space there"
    if error == _TOO_LARGE:
        return "raise the limit of file sizes (ulimit -f)"
    return "make it writable" if error in _WRITABLE else "repair it"


def _broker(
    broker: BrokerSight, seen: Sights, commands: Commands, *, zookeeper_serves: bool
) -> Iterator[Cause]:
    process, name = broker.process, f"broker {broker.id}"
    if process.state == DOWN:
        yield _broker_down(broker, commands)
    elif process.state == PAUSED:
        text = f"{name} is paused (SIGSTOP, pid {process.pid})"
        remedy = commands.of_broker("resume", broker.id, "lets it continue")
        yield Cause("broker-paused", text, remedy, broker.id)
    elif process.state == UNREACHABLE:
        yield _unreachable(broker, seen)
    elif process.state == UNTOLD:
        return
    elif broker.answer is None and not process.missing:
        yield _silent(broker, commands)
    elif broker.answer is None:
        return
    elif broker.answer["session_state"] != CONNECTED:
        if zookeeper_serves:
            state = broker.answer["session_state"].replace("_", " ")
            text = f"{name} has no connection to ZooKeeper at {seen.zookeeper.address} (its session: {state})"
            log = commands.of_broker("logs", broker.id, "shows why")
            remedy = f"{log}; if it lasts, {commands.of_broker('restart', broker.id)}"
            yield Cause("no-session", text, remedy, broker.id)
    elif zookeeper_serves and not is_registered(seen, broker.id):
        lists = (
            "no broker lists" if seen.coordination == LEADERS else "the controller does not list"
        )
        text = f"{name} has a ZooKeeper session, but {lists} it as alive"
        remedy = f"if it lasts, {commands.of_broker('restart', broker.id)}"
        yield Cause("not-registered", text, remedy, broker.id)


def is_registered(seen: Sights, broker: int) -> bool:
    """True if the active controller lists the broker as alive; also true if no active controller answers.

    In the mode leaders: if a broker with a session lists it as alive.
    """
    if seen.coordination == LEADERS:
        connected = [a for a in seen.answers.values() if a["session_state"] == CONNECTED]
        return not connected or any(broker in answer["live_brokers"] for answer in connected)
    active = active_controller(seen.answers, seen.elected)
    return active is None or broker in seen.answers[active]["live_brokers"]


def _broker_down(broker: BrokerSight, commands: Commands) -> Cause:
    process = broker.process
    text = f"broker {broker.id} is down: it has no process"
    remedy = commands.of_broker("start", broker.id, "starts it again")
    if failure := failure_in(process):
        text = f"broker {broker.id} is down: it ended with the error: {failure}"
        if any(words in failure for words in _SPACE) or process.full:
            remedy = f"free space there, then {remedy}"
        elif any(words in failure for words in _WRITABLE):
            remedy = f"make it writable, then {remedy}"
    elif CLEAN_END in process.last_line:
        text = f"broker {broker.id} is down: it was stopped"
    if process.full and not failure:
        text += f"; the file system of {process.full[0]} is full (No space left on device)"
        remedy = f"free space there, then {remedy}"
    if process.taken:
        text += f"; another process uses its port {process.taken[0]}"
        remedy = f"end the process that listens there, then {remedy}"
    return Cause("broker-down", text, remedy, broker.id)


def _unreachable(broker: BrokerSight, seen: Sights) -> Cause:
    listing = [id_ for id_, answer in seen.answers.items() if broker.id in answer["live_brokers"]]
    if not broker.address:
        text = f"broker {broker.id} is away: no broker that answers lists it as alive"
        return Cause("broker-unreachable", text, "start it on its machine", broker.id)
    text = f"broker {broker.id} at {broker.address} cannot be reached from here: {broker.failure}"
    if listing and broker.failure == REFUSED:
        text += f". Its process has ended, or listens elsewhere; {_names(listing)} it as alive"
        return Cause("broker-unreachable", text, "start it on its machine", broker.id)
    if listing:
        text += f", although {_names(listing)} it as alive"
        remedy = "check the network between here and its machine, and its advertised address"
        return Cause("broker-unreachable", text, remedy, broker.id)
    if seen.answers:
        text += ", and no broker that answers lists it as alive"
    return Cause("broker-unreachable", text, "start it on its machine", broker.id)


def _names(brokers: Sequence[int]) -> str:
    """Return the subject of a sentence: `broker 1 lists` or `brokers 1, 3 list`."""
    if len(brokers) == 1:
        return f"broker {brokers[0]} lists"
    return f"brokers {', '.join(map(str, brokers))} list"


def failure_in(process: ProcessSight) -> str:
    """Return the error with which a process has ended; "" if its log does not end with one."""
    line = process.last_line
    return line.removeprefix(FAILED) if line.startswith(FAILED) else ""


def _silent(broker: BrokerSight, commands: Commands) -> Cause:
    pid, port = broker.process.pid, broker.control_port
    if broker.answers_clients:
        text = (
            f"broker {broker.id} answers clients on port {broker.port}, but not the controller on port {port}: "
            f"{broker.failure}"
        )
        remedy = f"check what blocks port {port}, for example a firewall"
        if "certificate" in broker.failure:
            remedy = "replace its certificate; `minikafka up` does so in a secure cluster"
        return Cause("control-plane-silent", text, remedy, broker.id)
    text = (
        f"broker {broker.id} runs (pid {pid}) but does not answer: {broker.failure or 'it starts'}"
    )
    log = commands.of_broker("logs", broker.id, "shows why")
    remedy = f"{log}, {commands.of_broker('restart', broker.id, 'restarts it')}"
    return Cause("broker-silent", text, remedy, broker.id)


def _controller(seen: Sights) -> Iterator[Cause]:
    """Yield a cause if brokers answer, ZooKeeper serves, and none of these brokers is the controller.

    The mode leaders has none.
    """
    answers = seen.answers
    if seen.coordination == LEADERS or seen.zookeeper_is_away or not answers:
        return
    if active_controller(answers, seen.elected) is not None:
        return
    last = max(answers.values(), key=lambda answer: answer["controller_epoch"])["controller_id"]
    if last in seen.brokers and seen.brokers[last].process.state == UNTOLD:
        return
    text = "no broker that answers is the controller"
    if seen.is_remote and last in seen.brokers:
        text += f"; they name broker {last}"
    elif last in seen.brokers and last not in answers:
        timeout = seen.brokers[last].session_timeout_ms
        limit = f" ({timeout / 1000:g} s after it failed)" if timeout else ""
        text += f": it is broker {last} until its ZooKeeper session expires{limit}"
    yield Cause("no-controller", text)


def state_of(broker: BrokerSight, seen: Sights) -> str:
    """Return the state of a broker in one or two words; `up` if it can serve clients."""
    if broker.process.state != RUNS:
        return broker.process.state
    if broker.answer is None:
        return "silent"
    if broker.answer.get("offline_directories"):
        return "disk failed"
    if broker.answer["session_state"] != CONNECTED:
        return "no session"
    return "up" if is_registered(seen, broker.id) else "not registered"
