"""The state of a cluster, combined from the control-plane answers of its brokers; read-only.

Invariant: if two brokers both claim to lead a partition, the claim with the higher leader epoch is used. A
value is None if the only broker that knows it does not answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from minikafka.base.coordination import CONTROLLER, LEADERS
from minikafka.base.errors import ErrorCode, KafkaError
from minikafka.base.model import NO_EPOCH, NO_LEADER, TopicPartition
from minikafka.base.ports import Clock, Rng
from minikafka.broker.rpc.messages import STATE
from minikafka.tools.cluster.directory import ClusterDirectory, ClusterRecord
from minikafka.tools.cluster.observation.access import control_tls, inter_broker_access

if TYPE_CHECKING:
    from minikafka.broker.rpc.client import ControlPlaneClient
    from minikafka.client import Client

CALL_TIMEOUT_MS: Final = 2_000
STATE_TIMEOUT_MS: Final = 10_000
"""Time for a busy broker to answer; paused brokers are not called."""
NEW_TOPIC_MS: Final = 1_000
"""Time for which a broker's metadata may lack a topic that was just created."""
NEW_TOPIC_POLL_MS: Final = 100
CONNECTED: Final = "connected"
"""State of a ZooKeeper session that works."""
_TOOL: Final = -1
"""Sender id of a tool, which is not a broker."""


@dataclass(frozen=True, slots=True)
class ObservedPartition:
    """The state of one partition.

    While the leader does not answer, `leader` and the values of its log are None, and `leader_epoch` and
    `isr` have the last known values.
    """

    replicas: tuple[int, ...]
    leader: int | None
    leader_epoch: int
    isr: tuple[int, ...]
    log_start_offset: int | None
    log_end_offset: int | None
    high_watermark: int | None
    size: int | None
    """Bytes of the leader's log."""
    earliest_timestamp: int | None
    """Unix ms of the first batch of the log; also None if the log has no record."""
    compaction: Mapping[str, Any] | None
    """`LogCleaner.report` of the leader; also None if the topic is not compacted."""
    opening: tuple[int, ...] | None = None
    """The brokers for which an opening leader waits before it serves clients; None for any other leader."""
    last_stable_offset: int | None = None
    """Below the high watermark while transactions are open."""

    @property
    def is_available(self) -> bool:
        """True if a leader serves clients."""
        return self.leader is not None and self.opening is None


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The state of a cluster at one moment.

    `answers`: the control-plane answers by broker id, without brokers that did not answer. `controller` and
    `controller_epoch` are None in the mode leaders, which has no controller.
    """

    answers: Mapping[int, Mapping[str, Any]]
    controller: int | None
    controller_epoch: int | None
    partitions: Mapping[TopicPartition, ObservedPartition]

    def leader_of(self, topic: str, partition: int) -> int | None:
        """Return the leader of a partition; None if no leader serves clients or there is no such partition."""
        view = self.partitions.get(TopicPartition(topic, partition))
        return view.leader if view and view.is_available else None

    def has_isr(self, topic: str, brokers: Collection[int] | None) -> bool:
        """True if the topic exists, and each of its partitions has a leader and exactly `brokers` as its ISR.

        `brokers` None means the replicas of the partition.
        """
        views = [view for tp, view in self.partitions.items() if tp.topic == topic]
        return bool(views) and all(
            view.is_available
            and set(view.isr) == set(view.replicas if brokers is None else brokers)
            for view in views
        )

    def not_in_sync(self, ids: Collection[int]) -> list[TopicPartition]:
        """Return the partitions on these brokers that have an out-of-sync replica or no leader.

        Only replicas on these brokers are checked. A replica is out of sync if it is outside the ISR, or if
        its broker does not answer: the leader may not have noticed yet that the broker is paused.
        """
        running = set(ids)
        return [
            tp
            for tp, view in self.partitions.items()
            if (hosted := running.intersection(view.replicas))
            and (not view.is_available or not hosted <= self.answers.keys() & set(view.isr))
        ]

    def not_serving(self, ids: Iterable[int]) -> list[int]:
        """Return the brokers among `ids` that do not serve clients.

        A broker serves clients if it answers, knows the controller if there is one, and lists all of `ids` as live
        brokers.
        """
        wanted = set(ids)
        return [i for i in sorted(wanted) if not self._serves(self.answers.get(i), wanted)]

    def _serves(self, answer: Mapping[str, Any] | None, wanted: set[int]) -> bool:
        if answer is None or not wanted <= set(answer["live_brokers"]):
            return False
        if coordination_of(answer) == LEADERS:
            return True
        return self.controller is not None and answer["controller_id"] == self.controller


async def read_state(
    directory: ClusterDirectory, record: ClusterRecord, ids: Collection[int], clock: Clock, rng: Rng
) -> ClusterState:
    """Return the state that these brokers report; brokers that do not answer in time are left out."""
    answers = await call_all(
        directory, record, ids, STATE, {}, clock, rng, timeout_ms=STATE_TIMEOUT_MS
    )
    return combine(
        {id_: found for id_, found in answers.items() if not isinstance(found, Exception)}
    )


async def call_all(
    directory: ClusterDirectory,
    record: ClusterRecord,
    ids: Collection[int],
    method: str,
    body: dict[str, Any],
    clock: Clock,
    rng: Rng,
    *,
    timeout_ms: int = CALL_TIMEOUT_MS,
) -> dict[int, Mapping[str, Any] | OSError | KafkaError]:
    """Make one control-plane call to each of these brokers concurrently.

    Return, by broker id, the answer or the error of the call. The result is empty if none of these brokers
    was ever started, because the cluster id is unknown then.
    """
    control_plane = control_plane_of(directory, record, ids, clock, rng)
    if control_plane is None:
        return {}

    async def call(id_: int) -> Mapping[str, Any] | OSError | KafkaError:
        control = record.broker(id_).control
        try:
            return await control_plane.call(
                control, method, body, target_id=id_, timeout_ms=timeout_ms
            )
        except (OSError, KafkaError) as error:
            return error

    try:
        answers = await asyncio.gather(*map(call, ids))
    finally:
        await control_plane.close()
    return dict(zip(ids, answers, strict=True))


async def brokers_know(
    directory: ClusterDirectory,
    record: ClusterRecord,
    ids: Collection[int],
    tp: TopicPartition,
    clock: Clock,
    rng: Rng,
) -> bool:
    """True if the partition may exist: at least one of the brokers `ids` knows the partition or does not answer.

    Also True if `ids` is empty.
    """
    from minikafka.client import Client

    deadline = clock.now() + NEW_TOPIC_MS

    async def is_known_to(broker: int) -> bool:
        address, connector = inter_broker_access(directory, [record.broker(broker)], rng)
        async with Client(address, connector=connector, delivery_timeout_ms=NEW_TOPIC_MS) as client:
            while not (known := await _may_exist(client, tp)) and clock.now() < deadline:
                await clock.sleep(NEW_TOPIC_POLL_MS)
        return known

    return not ids or any(await asyncio.gather(*map(is_known_to, ids)))


async def _may_exist(client: Client, tp: TopicPartition) -> bool:
    try:
        [topic] = await client.describe_topics(tp.topic)
    except KafkaError as error:
        return error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return tp.partition in topic.partitions


def control_plane_of(
    directory: ClusterDirectory, record: ClusterRecord, ids: Collection[int], clock: Clock, rng: Rng
) -> ControlPlaneClient | None:
    """Return a control-plane client for the brokers `ids`; None if none of these brokers was ever started.

    Raises ConfigError if the control listeners are encrypted, and the truststore of the brokers cannot be read.
    """
    from minikafka.broker.rpc.client import ControlPlaneClient  # imports aiohttp, which takes 0.2 s

    cluster_id = next(filter(None, map(directory.cluster_id, ids)), None)
    if cluster_id is None:
        return None
    tls = control_tls(directory, map(record.broker, ids))
    secret = directory.secret(rng).encode()
    return ControlPlaneClient(secret, cluster_id, _TOOL, clock, rng, tls)


def combine(answers: Mapping[int, Mapping[str, Any]]) -> ClusterState:
    """Return the cluster state that the answers describe.

    `answers`: by broker id, the broker's answer to the control-plane call `state`.
    """
    best: dict[TopicPartition, Mapping[str, Any]] = {}
    for answer in answers.values():
        for replica in answer["replicas"]:
            tp = TopicPartition(replica["topic"], replica["partition"])
            if tp not in best or _weight(replica) > _weight(best[tp]):
                best[tp] = replica
    known = (
        (answer["controller_epoch"], answer["controller_id"])
        for answer in answers.values()
        if coordination_of(answer) == CONTROLLER
    )
    epoch, controller = max(known, default=(NO_EPOCH, NO_LEADER))
    return ClusterState(
        answers=answers,
        controller=None if controller == NO_LEADER else controller,
        controller_epoch=epoch if epoch != NO_EPOCH else None,
        partitions={tp: _view(replica) for tp, replica in sorted(best.items())},
    )


def claims_of(answers: Mapping[int, Mapping[str, Any]]) -> dict[int, int]:
    """Return the brokers that claim to be the active controller, with the controller epochs of their claims."""
    return {
        id_: answer["controller_epoch"]
        for id_, answer in answers.items()
        if answer.get("is_controller")
    }


def active_controller(
    answers: Mapping[int, Mapping[str, Any]], elected: int | None = None
) -> int | None:
    """Return the active controller if it is one of the brokers that answered, else None.

    A claim counts only in the newest epoch that any broker knows. `elected`: the broker that ZooKeeper names; None if
    it is not known.
    """
    claims = claims_of(answers)
    if elected is not None:
        return elected if elected in claims else None
    newest = max((answer["controller_epoch"] for answer in answers.values()), default=NO_EPOCH)
    return next((id_ for id_, epoch in claims.items() if epoch == newest), None)


def is_disputed(answers: Mapping[int, Mapping[str, Any]]) -> bool:
    """True if several brokers claim to be the controller, or if another broker knows a newer epoch than a claim."""
    claims = claims_of(answers)
    newest = max((answer["controller_epoch"] for answer in answers.values()), default=NO_EPOCH)
    return len(claims) > 1 or any(epoch < newest for epoch in claims.values())


def coordination_of(answer: Mapping[str, Any]) -> str:
    """Return the coordination mode of the broker that gave this answer. Older versions have only the controller."""
    return str(answer.get("coordination", CONTROLLER))


def backlog_of(answers: Iterable[Mapping[str, Any]]) -> Mapping[str, int]:
    """Return the number of requests that wait for each broker, by broker id as text; {} if no broker knows it.

    With a controller, only the controller knows it. In the mode leaders, each broker with a session knows it.
    """
    known = [answer for answer in answers if answer.get("backlog")]
    known.sort(key=lambda answer: -answer.get("controller_epoch", NO_EPOCH))
    known.sort(key=lambda answer: answer.get("session_state") != CONNECTED)
    found: Mapping[str, int] = known[0]["backlog"] if known else {}
    return found


def _weight(replica: Mapping[str, Any]) -> tuple[int, bool]:
    """Return a sort key for one broker's answer about a partition; the answer with the highest key is used.

    An answer with a higher leader epoch sorts higher; if the epochs are equal, the leader's answer does.
    """
    return replica["leader_epoch"], replica["role"] == "leader"


def _view(replica: Mapping[str, Any]) -> ObservedPartition:
    leads = replica["role"] == "leader"
    opening = replica.get("opening") if leads else None
    return ObservedPartition(
        replicas=tuple(replica["replicas"]),
        leader=replica["leader"] if leads else None,
        leader_epoch=replica["leader_epoch"],
        isr=tuple(replica["isr"]),
        log_start_offset=replica["log_start_offset"] if leads else None,
        log_end_offset=replica["log_end_offset"] if leads else None,
        high_watermark=replica["high_watermark"] if leads else None,
        size=replica["size"] if leads else None,
        earliest_timestamp=replica["earliest_timestamp"] if leads else None,
        compaction=replica["compaction"] if leads else None,
        opening=None if opening is None else tuple(opening),
        last_stable_offset=replica.get("last_stable_offset") if leads else None,
    )
