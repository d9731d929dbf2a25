"""Slow and broken networks between the hosts of a cluster, with a producer that writes all the time.

    broken-networks [--mode controller|leaders] [--fault NAME]… [--keep DIR] [--json]
    broken-networks --simulation SEEDS

Three brokers and ZooKeeper have a host each: network namespaces, whose packets go through a router in user space
(tests/support/hosts/router.py). Each fault is made, held and healed twice. The exit code is 0 only if writes with
acks=all go on within the stated time, or are refused with NOT_ENOUGH_REPLICAS where the fault leaves too few replicas;
if a broker that answers names the broken link; if all replicas are in sync again after the fault without help; and if
every acknowledged record is there, once and in order. It needs root and /dev/net/tun.

With --simulation, every single direction is cut in virtual time, in both modes and with this many seeds.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

sys.path.append(str(Path(__file__).resolve().parent))
sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))
from cut_directions import check_all
from support.hosts.spread import (
    BROKERS,
    LAG_MS,
    MACHINE,
    SESSION_MS,
    ZOOKEEPER,
    BrokenCluster,
    broken_cluster,
)

TOPIC = "t"
HOLD_SECONDS = 25.0
"""Time for which a fault lasts: longer than all stated times."""
RESUMED_SECONDS = max(1.5 * LAG_MS, SESSION_MS + 5_000) / 1000 + 6
"""Stated time after which acks=all goes on (docs/damage.md), and one request of the client that gets no answer."""
WHOLE_SECONDS = 2 * LAG_MS / 1000 + 20
"""Stated time after which all replicas are in sync when the network works again."""
RECORD_SECONDS = 0.02
"""Time between two records."""
ASKED_SECONDS = 5.0
"""Time after which brokers are asked about a fault: they need about as long to find it."""
STEP_SECONDS = 60.0


class Roles(NamedTuple):
    """The hosts when a fault begins."""

    leader: int
    follower: int
    other: int
    controller: int


@dataclass(frozen=True)
class Fault:
    """One fault. `make(cluster, roles)` makes it. `resumes`: acks=all must go on during the fault.

    `named`: the two hosts, or ZooKeeper's, whose link a broker must name; None: no link is broken for longer.
    """

    make: Callable[[BrokenCluster, Roles], None]
    named: Callable[[Roles], tuple[int, int]] | None = None
    resumes: bool = True
    kills: Callable[[Roles], int] | None = None


def slow(delay_ms: float, loss: float) -> Callable[[BrokenCluster, Roles], None]:
    """Return what makes the whole network slow or lossy."""

    def make(cluster: BrokenCluster, roles: Roles) -> None:
        everyone = (MACHINE, *BROKERS, ZOOKEEPER)
        for source in everyone:
            for target in everyone:
                if source != target:
                    cluster.hosts.change(source, target, delay_ms=delay_ms, loss=loss)

    return make


def _flap(cluster: BrokenCluster, roles: Roles) -> None:
    for _ in range(8):
        cluster.cut(roles.leader, roles.follower, both=True)
        time.sleep(1.5)
        cluster.heal()
        time.sleep(1.5)


def _isolate(cluster: BrokenCluster, roles: Roles) -> None:
    cluster.hosts.plug(roles.leader, plugged=False)


def _no_followers(cluster: BrokenCluster, roles: Roles) -> None:
    for broker in (roles.follower, roles.other):
        cluster.cut(roles.leader, broker, both=True)


def cut(
    source: str, target: str, *, both: bool = False, named: bool = True, resumes: bool = True
) -> Fault:
    """Return a cut between two roles; ZooKeeper and the clients are roles too."""

    def ends(roles: Roles) -> tuple[int, int]:
        places = {**roles._asdict(), "zookeeper": ZOOKEEPER, "client": MACHINE}
        return places[source], places[target]

    def make(cluster: BrokenCluster, roles: Roles) -> None:
        cluster.cut(*ends(roles), both=both)

    return Fault(make, ends if named else None, resumes)


FAULTS: dict[str, Fault] = {
    "delay": Fault(slow(50, 0)),
    "loss": Fault(slow(0, 0.02)),
    "leader-follower": cut("leader", "follower"),
    "follower-leader": cut("follower", "leader"),
    "leader-follower-both": cut("leader", "follower", both=True),
    "leader-zookeeper": cut("leader", "zookeeper"),
    "zookeeper-leader": cut("zookeeper", "leader"),
    "leader-zookeeper-both": cut("leader", "zookeeper", both=True),
    "follower-zookeeper-both": cut("follower", "zookeeper", both=True),
    "controller-other": cut("controller", "other"),
    "other-controller": cut("other", "controller"),
    "client-leader": cut("client", "leader", named=False, resumes=False),
    "leader-client": cut("leader", "client", named=False, resumes=False),
    "no-followers": Fault(_no_followers, lambda roles: (roles.leader, roles.other), resumes=False),
    "isolated": Fault(_isolate, lambda roles: (roles.follower, roles.leader)),
    "power": Fault(
        lambda cluster, roles: cluster.lose_power(roles.leader),
        lambda roles: (roles.follower, roles.leader),
        kills=lambda roles: roles.leader,
    ),
    "flapping": Fault(_flap),
}


class Writer:
    """An idempotent producer with acks=all. `acked`: the number of each record, and when it was acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.acked: list[tuple[float, int]] = []
        self.failed: list[str] = []
        self._count = 0
        self._stopped = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "request.timeout.ms": 5_000,
                "socket.timeout.ms": 6_000,
                "message.timeout.ms": 300_000,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            number, self._count = self._count, self._count + 1
            self._producer.produce(
                TOPIC, b"%d" % number, partition=0, on_delivery=self._note(number)
            )
            self._producer.poll(0)
            time.sleep(RECORD_SECONDS)

    def _note(self, number: int) -> Callable[[Any, Any], None]:
        def note(error: Any, message: Any) -> None:
            if error is None:
                self.acked.append((time.monotonic(), number))
            else:
                self.failed.append(str(error))

        return note

    def longest_pause(self, since: float, until: float) -> float:
        """Return the longest time between two acknowledgements in a period."""
        times = [since, *(at for at, _ in list(self.acked) if since < at < until), until]
        return max(later - earlier for earlier, later in pairwise(times))

    def stop(self) -> None:
        """Wait for all acknowledgements."""
        self._stopped.set()
        self._thread.join()
        self._producer.flush(60)


@dataclass
class Result:
    """What happened in one round of one fault. `problems` is empty if all went as stated."""

    fault: str
    round: int
    roles: dict[str, int]
    longest_pause_s: float = 0
    resumed_s: float | None = None
    whole_s: float | None = None
    refusal: str = ""
    named: str = ""
    named_s: float | None = None
    problems: list[str] = field(default_factory=list)


class Job:
    """One cluster of one mode, and the faults one after the other."""

    def __init__(
        self, cluster: BrokenCluster, say: Callable[[str], None], hold_seconds: float = HOLD_SECONDS
    ) -> None:
        self._cluster = cluster
        self._say = say
        self._hold = hold_seconds
        self.results: list[Result] = []

    def run(self, names: Sequence[str], rounds: int = 2) -> None:
        """Make each fault in each round, and compare all records at the end."""
        cluster = self._cluster
        wait(cluster.has_all_brokers)
        cluster.create_topic(TOPIC)
        wait(self._is_whole)
        writer = Writer(cluster.bootstrap)
        for name in names:
            for number in range(1, rounds + 1):
                result = self._round(name, number, writer)
                self.results.append(result)
                verdict = "; ".join(result.problems) or "ok"
                self._say(f"{name} {number}: {_figures(result)}: {verdict}")
        writer.stop()
        self.problems = differences(self._read(), [number for _, number in writer.acked])
        self.acked = len(writer.acked)

    def _round(self, name: str, number: int, writer: Writer) -> Result:
        fault, cluster = FAULTS[name], self._cluster
        roles = self._roles()
        result = Result(name, number, roles._asdict())
        begun = time.monotonic()
        fault.make(cluster, roles)
        if not fault.resumes and fault.named is not None:
            result.refusal = self._refusal(begun + RESUMED_SECONDS)
            if "NOT_ENOUGH_REPLICAS" not in result.refusal:
                result.problems.append(f"acks=all is answered with {result.refusal or 'nothing'}")
        if fault.named is not None:
            self._await_name(fault.named(roles), begun, result)
        time.sleep(max(0, begun + self._hold - time.monotonic()))
        healed = time.monotonic()
        result.longest_pause_s = writer.longest_pause(begun, healed)
        if fault.resumes and result.longest_pause_s > RESUMED_SECONDS:
            result.problems.append("acks=all did not go on in time")
        cluster.heal()
        if fault.kills is not None:
            cluster.start(fault.kills(roles))
        self._await_whole(healed, writer, result)
        return result

    def _await_name(self, ends: tuple[int, int], begun: float, result: Result) -> None:
        time.sleep(max(0, begun + ASKED_SECONDS - time.monotonic()))
        while time.monotonic() < begun + HOLD_SECONDS:
            for broker in BROKERS:
                if text := self._named_by(broker, ends):
                    result.named, result.named_s = text, time.monotonic() - begun
                    return
            time.sleep(0.5)
        result.problems.append(f"no broker names the link between {ends}")

    def _named_by(self, broker: int, ends: tuple[int, int]) -> str:
        for cause in causes(self._cluster.address(broker)):
            if is_about(cause["text"], ends):
                return str(cause["text"])
        return ""

    def _refusal(self, until: float) -> str:
        """Write with acks=all until the leader refuses it for lack of replicas; return the last error."""
        last = ""
        while time.monotonic() < until:
            last = self._attempt()
            if last.startswith("NOT_ENOUGH_REPLICAS"):
                return last
            time.sleep(0.5)
        return last

    def _attempt(self) -> str:
        found: list[Any] = []
        settings = {"acks": "all", "retries": 0, "request.timeout.ms": 2_000, "log_level": 0}
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap, **settings})
        producer.produce(TOPIC, b"", partition=0, on_delivery=lambda error, _: found.append(error))
        producer.flush(10)
        error = found[0] if found else None
        return "" if error is None else KafkaError(error.code()).name()

    def _await_whole(self, healed: float, writer: Writer, result: Result) -> None:
        while not self._is_whole():
            if time.monotonic() > healed + STEP_SECONDS:
                result.problems.append("not all replicas are in sync again")
                return
            time.sleep(0.2)
        result.whole_s = time.monotonic() - healed
        if result.whole_s > WHOLE_SECONDS:
            result.problems.append("the replicas were late to be in sync again")
        wait(lambda: writer.acked[-1][0] > healed)
        result.resumed_s = next(at for at, _ in writer.acked if at > healed) - healed

    def _is_whole(self) -> bool:
        leader, isr, _ = self._cluster.view(TOPIC)
        return leader > 0 and len(isr) == len(BROKERS) and self._cluster.has_all_brokers()

    def _roles(self) -> Roles:
        leader, _, controller = self._cluster.view(TOPIC)
        followers = [broker for broker in BROKERS if broker != leader]
        if controller not in BROKERS:
            controller = followers[0]
        if controller == followers[1]:
            followers.reverse()
        other = followers[1] if controller != followers[1] else followers[0]
        return Roles(leader, followers[0], other, controller)

    def _read(self) -> list[int]:
        """Return the numbers of all records, in order."""
        settings = {"bootstrap.servers": self._cluster.bootstrap, "group.id": "check"}
        consumer = Consumer({**settings, "enable.auto.commit": False})
        partition = TopicPartition(TOPIC, 0, OFFSET_BEGINNING)
        consumer.assign([partition])
        _, end = consumer.get_watermark_offsets(partition, timeout=30)
        found, position = [], 0
        while position < end:
            message = consumer.poll(10)
            if message is None or message.error():
                break
            position = message.offset() + 1
            if message.value():
                found.append(int(message.value()))
        consumer.close()
        return found


def causes(address: str) -> list[dict[str, Any]]:
    """Return the causes that `minikafka status` tells from one broker."""
    command = [sys.executable, "-m", "minikafka", "status", "--bootstrap", address, "--json"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
        found: list[dict[str, Any]] = json.loads(done.stdout).get("causes", [])
    except (ValueError, subprocess.TimeoutExpired):
        return []
    return found


def is_about(text: str, ends: tuple[int, int]) -> bool:
    """True if a text says that one of the two does not reach the other."""
    names = ["ZooKeeper" if end == ZOOKEEPER else f"broker {end}" for end in ends]
    pair = f"brokers {min(ends)} and {max(ends)} cannot reach each other"
    reaches = (
        f"{names[0]} cannot reach {names[1]}" in text
        or f"{names[1]} cannot reach {names[0]}" in text
    )
    return pair in text or reaches or f"no broker reaches {names[1]}" in text


def differences(read: Sequence[int], acked: Sequence[int]) -> list[str]:
    """Return what is wrong with the records: lost, twice, or in another order."""
    found = []
    if lost := sorted({*acked} - {*read}):
        found.append(f"{len(lost)} acknowledged records are lost, the first is {lost[0]}")
    if len(read) != len({*read}):
        found.append(f"{len(read) - len({*read})} records are there twice")
    if list(read) != sorted(read):
        found.append("records are not in order")
    return found


def wait(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true. Raises TimeoutError."""
    deadline = time.monotonic() + STEP_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{condition} is not true after {STEP_SECONDS:g} s")
        time.sleep(0.2)


def _figures(result: Result) -> str:
    parts = [f"longest pause {result.longest_pause_s:.1f} s"]
    if result.named_s is not None:
        parts.append(f"named after {result.named_s:.1f} s")
    if result.refusal:
        parts.append(f"refused with {result.refusal}")
    if result.whole_s is not None:
        parts.append(f"whole {result.whole_s:.1f} s after the fault")
    return ", ".join(parts)


def run(mode: str, names: Sequence[str], directory: Path, say: Callable[[str], None]) -> Any:
    """Run the faults on a cluster of one mode; return the verdict as plain values."""
    with broken_cluster(directory, mode) as cluster:
        job = Job(cluster, say)
        job.run(names)
    problems = [problem for result in job.results for problem in result.problems] + job.problems
    return {
        "mode": mode,
        "ok": not problems,
        "acknowledged": job.acked,
        "records": job.problems,
        "rounds": [asdict(result) for result in job.results],
    }


def simulate(seeds: int) -> int:
    """Cut every direction in the simulation, with each seed; return the exit code."""
    problems = []
    for seed in range(1, seeds + 1):
        found = check_all(seed, print)
        print(f"seed {seed}: {'; '.join(found) or 'ok'}", flush=True)
        problems += found
    return 1 if problems else 0


def main() -> int:
    """Run the faults of the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--mode", choices=("controller", "leaders"), action="append")
    parser.add_argument("--fault", choices=tuple(FAULTS), action="append")
    parser.add_argument("--keep", type=Path, help="directory for the data and logs of the run")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--simulation", type=int, metavar="SEEDS")
    given = parser.parse_args()
    if given.simulation:
        return simulate(given.simulation)
    say = (lambda text: None) if given.json else (lambda text: print(text, flush=True))
    verdicts = []
    for mode in given.mode or ("controller", "leaders"):
        with tempfile.TemporaryDirectory() as temporary:
            directory = (given.keep or Path(temporary)) / mode
            directory.mkdir(parents=True)
            say(f"mode {mode}")
            verdicts.append(run(mode, given.fault or tuple(FAULTS), directory, say))
    ok = all(verdict["ok"] for verdict in verdicts)
    if given.json:
        print(json.dumps({"ok": ok, "runs": verdicts}))
    else:
        print("nothing was lost, and all went on as stated" if ok else "FAILED")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
