"""What must survive a takeover besides the copied records: each promise is prepared once, and checked after each start.

Kafka's own tools, librdkafka and kafka-python write and read, so that no code of minikafka judges itself.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from kafka.admin import ConfigResource
from kafka_takeover_cluster import (
    STEP_SECONDS,
    Cluster,
    Promise,
    nodes_below,
    note_refusal,
    patiently,
    until_known,
)
from kafka_takeover_logs import Compacted, LogStarts
from kazoo.exceptions import NodeExistsError
from transactional_client import retry

USER, PASSWORD = "alice", "password-of-alice"
LOGIN: Final = "SASL"
GROUPS: Final = 30
BIG_GROUP_OFFSETS: Final = 200
MOVED_BYTES: Final = 1_500_000
_EVERY_BROKER: Final = 3


class Settings(Promise):
    """Settings, users, quotas, ACLs, tokens, topic ids and the cluster id: their nodes, and what brokers answer."""

    ROOTS: Final = ("/config", "/kafka-acl", "/kafka-acl-extended", "/delegation_token/tokens")

    def prepare(self) -> None:
        config = partial(self.cluster.java, "kafka.admin.ConfigCommand")
        at = ("--bootstrap-server", self.cluster.plain, "--alter")
        config(*at, "--entity-type", "brokers", "--entity-default", "--add-config", _BROKERS)
        config(*at, "--entity-type", "brokers", "--entity-name", "1", "--add-config", _BROKER)
        scram = f"SCRAM-SHA-256=[iterations=4096,password={PASSWORD}]"
        config(*at, "--entity-type", "users", "--entity-name", USER, "--add-config", scram)
        config(*at, "--entity-type", "users", "--entity-name", USER, "--add-config", _QUOTA)
        config(*at, "--entity-type", "clients", "--entity-default", "--add-config", _QUOTA)
        config(*at, "--entity-type", "ips", "--entity-name", "10.1.2.3", "--add-config", _RATE)
        self.cluster.create("readable", retention_ms="-1")
        self.cluster.create("hidden")
        self.cluster.write("readable", {b"k": b"for alice"})
        acls = partial(self.cluster.java, "kafka.admin.AclCommand")
        at = ("--bootstrap-server", self.cluster.plain, "--add")
        allow = ("--allow-principal", f"User:{USER}")
        acls(*at, *allow, "--operation", "Read", "--topic", "readable")
        acls(
            *at, *allow, "--operation", "All", "--group", "a", "--resource-pattern-type", "prefixed"
        )
        acls(*at, "--deny-principal", "User:*", "--operation", "Write", "--topic", "hidden")
        self._make_token()
        self._nodes = self._read_nodes()
        self._told = patiently(self._settled)

    def _make_token(self) -> None:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        file = self.cluster.directory / "alice.properties"
        jaas = f'{module} required username="{USER}" password="{PASSWORD}";'
        common = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n"
        file.write_text(f"{common}sasl.jaas.config={jaas}\n")
        tool = "org.apache.kafka.tools.DelegationTokenCommand"
        at = ("--bootstrap-server", self.cluster.secured, "--command-config", str(file))
        create = partial(self.cluster.java, tool, *at, "--create", "--max-life-time-period", "-1")
        made = patiently(create)
        [(token, hmac)] = re.findall(r"(?m)^(\S{22})\s+(\S{80,})\s", made)
        jaas = f'{module} required username="{token}" password="{hmac}" tokenauth="true";'
        self._token_file = self.cluster.directory / "token.properties"
        self._token_file.write_text(f"{common}sasl.jaas.config={jaas}\n")

    def _read_nodes(self) -> dict[str, bytes]:
        with self.cluster.zookeeper() as zookeeper:
            found = {"/cluster/id": zookeeper.get("/cluster/id")[0]}
            for root in self.ROOTS:
                found |= dict(nodes_below(zookeeper, root))
            for topic in ("readable", "hidden", "input"):
                data, _ = zookeeper.get(f"/brokers/topics/{topic}")
                found[f"topic id of {topic}"] = json.loads(data)["topic_id"].encode()
        return {path: data for path, data in found.items() if not path.startswith(_OTHERS)}

    def _settled(self) -> dict[str, object]:
        """Return the answers of brokers that have applied all changes. Raises RuntimeError."""
        found = self._ask()
        if "max.connections" not in str(found["broker 1"]):
            raise RuntimeError("Kafka has not applied the change of its broker 1: start again")
        return found

    def _ask(self) -> dict[str, object]:
        found: dict[str, object] = {}
        with self.cluster.admin() as admin:
            for kind, name in (("topic", "readable"), ("topic", "input"), ("broker", "1")):
                told = admin.describe_configs([ConfigResource(kind, name)])[kind][name]
                if not told:
                    raise RuntimeError(f"a broker that has just started does not know {name} yet")
                found[f"{kind} {name}"] = {
                    key: entry["value"]
                    for key, entry in told.items()
                    if entry["config_source"].startswith("DYNAMIC")
                }
            users = admin.describe_user_scram_credentials([USER])[USER]
        found["users"] = [
            (str(one["mechanism"]), one["iterations"]) for one in users["credential_infos"]
        ]
        arguments = ("--bootstrap-server", self.cluster.plain)
        acls = self.cluster.java("kafka.admin.AclCommand", *arguments, "--list")
        found["acls"] = sorted(line.strip() for line in acls.splitlines() if line.strip())
        describe = partial(self.cluster.java, "kafka.admin.ConfigCommand", *arguments, "--describe")
        found["quotas"] = sorted(describe("--entity-type", "users").splitlines())
        return found

    def problems(self, turn: int, *, was_killed: bool) -> list[str]:
        found = [*_different("node", self._nodes, self._read_nodes())]
        found += _different("answer", self._told, patiently(self._ask))
        login = {
            "bootstrap.servers": self.cluster.secured,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "group.id": "alices",
        }
        if [one.value() for one in self.cluster.read("readable", **login)] != [b"for alice"]:
            found.append(f"{USER} does not read her topic")
        seen = Consumer(login).list_topics("hidden", STEP_SECONDS).topics["hidden"]
        if seen.error is None or seen.error.code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            found.append(f"{USER} sees hidden: {seen.error}")
        arguments = (
            "--bootstrap-server",
            self.cluster.secured,
            "--topic",
            "readable",
            "--from-beginning",
        )
        limits = ("--max-messages", "1", "--timeout-ms", "30000", "--group", f"a-token-{turn}")
        with_token = ("--consumer.config", str(self._token_file))
        tool = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        read = self.cluster.java(tool, *arguments, *limits, *with_token, succeeds=False)
        return found if read == "for alice\n" else [*found, f"the token does not read: {read!r}"]


_OTHERS: Final = (
    "/config/changes",
    "/config/topics/__",
    "/config/topics/doomed",
    "/config/topics/moving",
)
"""The settings that the other promises and the brokers change."""
_RATES: Final = "leader.replication.throttled.rate=1,follower.replication.throttled.rate=1"
_BROKERS: Final = f"log.cleaner.backoff.ms=1000,{_RATES}"
_BROKER: Final = "max.connections=5000"
_QUOTA: Final = "producer_byte_rate=50000000,consumer_byte_rate=60000000"
_RATE: Final = "connection_creation_rate=99"


def _different(what: str, wanted: Mapping[str, object], found: Mapping[str, object]) -> list[str]:
    names = sorted(wanted.keys() | found.keys())
    return [
        f"{what} {name}: {found.get(name)!r}, before it {wanted.get(name)!r}"
        for name in names
        if wanted.get(name) != found.get(name)
    ]


class Groups(Promise):
    """Groups without members keep their offsets and metadata, also one with many offsets.

    librdkafka ends the metadata that it commits with a zero byte, and kafka-python returns this byte.
    """

    def prepare(self) -> None:
        self.cluster.create("wide", BIG_GROUP_OFFSETS)
        self._wanted = {
            f"idle-{number}": {("input", number % 6): (number, f"note {number}")}
            for number in range(GROUPS)
        }
        self._wanted["big"] = {("wide", n): (0, "") for n in range(BIG_GROUP_OFFSETS)}
        for group, offsets in self._wanted.items():
            consumer = Consumer(self.cluster.client | {"group.id": group})
            places = [
                TopicPartition(*place, offset, metadata)
                for place, (offset, metadata) in offsets.items()
            ]
            patiently(partial(consumer.commit, offsets=places, asynchronous=False))
            consumer.close()

    def problems(self, turn: int, *, was_killed: bool) -> list[str]:
        found = []
        answers, listed = patiently(self._ask)
        for group, offsets in self._wanted.items():
            told = {
                (place.topic, place.partition): (one.offset, one.metadata.rstrip("\0"))
                for place, one in answers[group].items()
            }
            if told != offsets:
                found.append(f"group {group}: {told}, before it {offsets}")
        return [*found, *(f"group {one} is not listed" for one in self._wanted.keys() - listed)]

    def _ask(self) -> tuple[dict[str, Any], set[str]]:
        """Return the offsets of the groups, and the listed groups. An administrator keeps old coordinators."""
        with self.cluster.admin() as admin:
            answers = admin.list_group_offsets(dict.fromkeys(self._wanted))
            return answers, {one["group_id"] for one in admin.list_groups()}


class Transactions(Promise):
    """An open transaction is ended by the next producer of its id, and one whose producer lives is committed."""

    TOPIC: Final = "transactions"

    def prepare(self) -> None:
        self.cluster.create(self.TOPIC)
        self._wanted: list[bytes] = []
        self._living: Producer | None = None

    def _producer(self, name: str) -> Producer:
        config = {"transactional.id": name, "transaction.timeout.ms": 300_000}
        producer = Producer(self.cluster.producer | config)
        retry(producer.init_transactions)
        return producer

    def _send(self, producer: Producer, value: bytes) -> None:
        refused: list[KafkaError] = []
        note = partial(note_refusal, refused)
        until_known(producer, self.TOPIC)
        producer.produce(self.TOPIC, value, partition=0, on_delivery=note)
        producer.flush(STEP_SECONDS)
        if refused:
            raise RuntimeError(f"{value!r} was refused: {refused[0]}")

    def before(self, turn: int) -> None:
        left = self._producer("left-open")
        left.begin_transaction()
        self._send(left, b"half %d" % turn)
        self._left = left  # its transaction is open while the brokers stop
        living = self._producer("living")
        living.begin_transaction()
        self._send(living, b"first part of %d" % turn)
        self._living = living

    def problems(self, turn: int, *, was_killed: bool) -> list[str]:
        if self._living is not None:
            self._send(self._living, b"second part of %d" % turn)
            retry(self._living.commit_transaction)
            self._wanted += [b"first part of %d" % turn, b"second part of %d" % turn]
        successor = self._producer("left-open")
        successor.begin_transaction()
        self._send(successor, b"whole %d" % turn)
        retry(successor.commit_transaction)
        self._wanted.append(b"whole %d" % turn)
        found = self._fenced(turn)
        read = [one.value() for one in self.cluster.read(self.TOPIC)]
        if read != self._wanted:
            found.append(f"transactions: read {read[-6:]}, expected {self._wanted[-6:]}")
        return found

    def _fenced(self, turn: int) -> list[str]:
        """The former producer of the id must not commit."""
        try:
            self._left.commit_transaction(STEP_SECONDS)
        except KafkaException as error:
            return [] if error.args[0].fatal() else [f"left-open: {error}"]
        return [f"the former producer of left-open has committed half {turn}"]


class ProducerIds(Promise):
    """No producer id is given out twice, and an idempotent producer goes on. Read from the log by Kafka's tool."""

    TOPIC: Final = "ids"

    def prepare(self) -> None:
        self.cluster.create(self.TOPIC)
        self._count = 0
        self._living = Producer(
            self.cluster.producer | {"enable.idempotence": True, "delivery.timeout.ms": 300_000}
        )

    def before(self, turn: int) -> None:
        self._write(turn)

    def _write(self, turn: int) -> None:
        for number in range(_EVERY_BROKER):
            self.cluster.write(
                self.TOPIC, {b"new": b"%d %d" % (turn, number)}, enable_idempotence="true"
            )
            self._count += 1

    def problems(self, turn: int, *, was_killed: bool) -> list[str]:
        self._write(turn)
        until_known(self._living, self.TOPIC)
        failures: list[KafkaError] = []
        self._living.produce(
            self.TOPIC, b"%d" % turn, b"living", on_delivery=partial(note_refusal, failures)
        )
        left = self._living.flush(STEP_SECONDS)
        return [f"living producer: {failures or left}"] if failures or left else []

    def end(self) -> list[str]:
        [segment, *_] = self.cluster.directory.glob(f"1/logs-*/{self.TOPIC}-0/*.log")
        arguments = ("--deep-iteration", "--print-data-log", "--files", str(segment))
        dump = self.cluster.java("kafka.tools.DumpLogSegments", *arguments)
        found: dict[str, set[str]] = {"new": set(), "living": set()}
        batch = ""
        for line in dump.splitlines():
            if line.startswith("baseOffset:"):
                batch = re.findall(r"producerId: (-?\d+)", line)[0]
            elif match := re.search(r"key: (new|living) ", line):
                found[match[1]].add(batch)
        wanted = {"new": self._count, "living": 1}
        counts = {kind: len(ids) for kind, ids in found.items()}
        return [] if counts == wanted else [f"producer ids: {counts}, expected {wanted}"]


class Moves(Promise):
    """A reassignment that the stop interrupts goes on, and ends with all records."""

    TOPIC: Final = "moving"

    def prepare(self) -> None:
        self.cluster.create(self.TOPIC, 1, 2)
        value = bytes(range(250)) * 40
        self._count = MOVED_BYTES // len(value)
        self.cluster.write(self.TOPIC, {b"%d" % n: value for n in range(self._count)})

    def before(self, turn: int) -> None:
        self._throttle("*")
        self._begin()
        while "still in progress" not in self._reassign("--verify"):
            self._begin()  # the throttle was not yet in force

    def _begin(self) -> None:
        now = self._replicas()
        other = ({1, 2, 3} - set(now)).pop()
        self._target = [other, now[0]]
        self._reassign("--execute")

    def _replicas(self) -> list[int]:
        """Return the replicas in ZooKeeper: a broker may not have received the end of a move yet."""
        with self.cluster.zookeeper() as zookeeper:
            data, _ = zookeeper.get(f"/brokers/topics/{self.TOPIC}")
        replicas: list[int] = json.loads(data)["partitions"]["0"]
        return replicas

    def _throttle(self, replicas: str) -> None:
        names = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
        at = ("--bootstrap-server", self.cluster.plain, "--alter", "--entity-type", "topics")
        config = ",".join(f"{name}={replicas}" for name in names)
        change = ("--add-config", config) if replicas else ("--delete-config", ",".join(names))
        tool = "kafka.admin.ConfigCommand"
        self.cluster.java(tool, *at, "--entity-name", self.TOPIC, *change)

    def _reassign(self, action: str) -> str:
        file = self.cluster.directory / "moves.json"
        move = {"topic": self.TOPIC, "partition": 0, "replicas": self._target}
        file.write_text(json.dumps({"version": 1, "partitions": [move]}))
        tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
        at = ("--bootstrap-server", self.cluster.plain, "--reassignment-json-file", str(file))
        return self.cluster.java(
            tool, *at, action, *(["--preserve-throttles"] if action == "--verify" else [])
        )

    def problems(self, turn: int, *, was_killed: bool) -> list[str]:
        found: list[str] = []
        self._throttle("")
        deadline = time.monotonic() + STEP_SECONDS
        while "is completed" not in (listed := self._reassign("--verify")):
            if time.monotonic() > deadline:
                return [*found, f"the move does not end: {listed}"]
        if (now := self._replicas()) != self._target:
            found.append(f"moving has the replicas {now}, expected {self._target}")
        count = len(self.cluster.read(self.TOPIC))
        return (
            found if count == self._count else [*found, f"moving: {count} records of {self._count}"]
        )


class Deletions(Promise):
    """A deletion that was asked for before the stop is done after it, and a new topic of the name is empty."""

    TOPIC: Final = "doomed"

    def prepare(self) -> None:
        self._create()

    def _create(self) -> None:
        self.cluster.create(self.TOPIC, 3)
        self.cluster.write(self.TOPIC, {b"k": b"v"})

    def between(self, turn: int) -> None:
        with self.cluster.zookeeper() as zookeeper, suppress(NodeExistsError):
            zookeeper.create(f"/admin/delete_topics/{self.TOPIC}")

    def problems(self, turn: int, *, was_killed: bool) -> list[str]:
        deadline = time.monotonic() + STEP_SECONDS
        while self._left():
            if time.monotonic() > deadline:
                return [f"not deleted: {self._left()}"]
            time.sleep(0.2)
        self._create()
        read = self.cluster.read(self.TOPIC)
        return [] if len(read) == 1 else [f"{self.TOPIC} has {len(read)} records, expected 1"]

    def _left(self) -> list[str]:
        with self.cluster.zookeeper() as zookeeper:
            nodes = [f"/brokers/topics/{self.TOPIC}", f"/admin/delete_topics/{self.TOPIC}"]
            found = [path for path in nodes if zookeeper.exists(path)]
        pattern = f"*/logs-*/{self.TOPIC}-[0-9]"
        return [*found, *map(str, self.cluster.directory.glob(pattern))]


class Epochs(Promise):
    """The epochs in each log, with their first offsets, stay as they are: `leader-epoch-checkpoint`."""

    def prepare(self) -> None:
        self._known: dict[tuple[str, int], int] = {}

    def problems(self, turn: int, *, was_killed: bool) -> list[str]:
        found = []
        for file in self.cluster.directory.glob("*/logs-*/input-*/leader-epoch-checkpoint"):
            lines = [line.split() for line in file.read_text().splitlines()[2:]]
            for epoch, start in lines[:-1]:  # a follower may still cut its last one
                key = file.parent.name, int(epoch)
                if self._known.setdefault(key, int(start)) != int(start):
                    found.append(
                        f"{file}: epoch {epoch} from {start}, before it {self._known[key]}"
                    )
        return found

    def end(self) -> list[str]:
        """Every batch and index of every replica must be valid for Kafka's own tool."""
        names = [
            str(p)
            for s in ("log", "index", "timeindex")
            for p in self.cluster.directory.glob(f"*/logs-*/*/*.{s}")
        ]
        names = [name for name in names if "-delete/" not in name and "-stray/" not in name]
        arguments = ("--deep-iteration", "--index-sanity-check", "--files", ",".join(names))
        dump = self.cluster.java("kafka.tools.DumpLogSegments", *arguments, succeeds=False)
        bad = [line for line in dump.splitlines() if "isvalid: false" in line]
        bad += [
            line
            for line in dump.splitlines()
            if re.search(r"(?i)mismatch|non-consecutive|corrupt|not found|failed", line)
        ]
        return bad[:10]


PROMISES: Final[Sequence[Callable[[Cluster], Promise]]] = (
    Settings,
    Groups,
    Transactions,
    ProducerIds,
    Compacted,
    LogStarts,
    Moves,
    Deletions,
    Epochs,
)


class Promises:
    """All promises of one cluster. Each runs in a thread of its own, because most of the time they wait for Java."""

    def __init__(self, cluster: Cluster) -> None:
        self._all = [kind(cluster) for kind in PROMISES]

    def prepare(self) -> None:
        """Make what must survive, on Kafka. Raises RuntimeError."""
        _require(self._each(lambda promise: promise.prepare()))

    def before(self, turn: int) -> None:
        """Begin what the stop of the brokers interrupts. Raises RuntimeError."""
        _require(self._each(lambda promise: promise.before(turn)))

    def between(self, turn: int) -> None:
        """Change what a broker that died would have left in ZooKeeper. Raises RuntimeError."""
        _require(self._each(lambda promise: promise.between(turn)))

    def problems(self, turn: int, *, was_killed: bool) -> list[str]:
        """Return what has not survived, as texts."""
        return self._each(lambda promise: promise.problems(turn, was_killed=was_killed))

    def end(self) -> list[str]:
        """Return what is wrong at the end, after the brokers have stopped."""
        return self._each(lambda promise: promise.end())

    def _each(self, do: Callable[[Promise], list[str] | None]) -> list[str]:
        found: list[str] = []

        def one(promise: Promise) -> None:
            try:
                found.extend(do(promise) or ())
            except Exception as error:  # noqa: BLE001 - whatever fails breaks the promise
                found.append(f"{type(promise).__name__}: {error!r}")

        threads = [
            threading.Thread(target=one, args=[promise], daemon=True) for promise in self._all
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


def _require(failures: list[str]) -> None:
    if failures:
        raise RuntimeError("; ".join(failures))
