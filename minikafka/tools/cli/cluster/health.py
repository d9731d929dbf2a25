"""`cluster health`: find what is wrong with a cluster.

Metadata alone is not sufficient: a broker that was killed or paused stays in the metadata until its session
expires. So a client request is sent to every broker and every leader. Without `--bootstrap`, the processes, disks
and ZooKeeper of the cluster are examined too (`tools/cluster/observation/sights.py`). Invariant: a value that no broker
has reported is null, never 0. No step waits longer than broker_views.ASK_MS.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from statistics import median_low
from typing import Any, Final, NamedTuple

import click

import minikafka.client as clients
import minikafka.tools.cluster.local as clusters
import minikafka.tools.cluster.observation.access as broker_access
import minikafka.tools.cluster.observation.causes as root_causes
import minikafka.tools.cluster.observation.remote as remote
import minikafka.tools.cluster.observation.sights as sight
import minikafka.tools.cluster.observation.state as cluster_state
import minikafka.tools.cluster.observation.views as broker_views
from minikafka.base.coordination import CONTROLLER, LEADERS
from minikafka.base.errors import KafkaError
from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.base.names import is_internal, listed
from minikafka.runtime.clock import SystemClock, SystemRng
from minikafka.tools.cli.arguments.command_config import command_config_file, connector
from minikafka.tools.cli.arguments.find_cluster import find_cluster, where_option
from minikafka.tools.cli.arguments.options import connection_options, timeout_option
from minikafka.tools.cli.cluster.certificates import certificate_notes
from minikafka.tools.cli.execution.running import fail_unless, run
from minikafka.tools.cli.terminal.echo import echo, json_option, show

LISTED_MAX: Final = 10
"""Maximum number of partitions in one line of the output."""
_AWAY: Final = (
    "broker-down",
    "broker-paused",
    "broker-silent",
    "broker-unreachable",
    "cluster-down",
)
"""The causes because of which a broker does not serve clients."""


class Observed(NamedTuple):
    """The state of a cluster. `info` and `topics`: the metadata, None if no broker answers.

    `faults`: by broker id, why the broker does not serve clients. `leaders`: by partition, the outcome of a client
    request to the leader. `moving`: reassignments in progress, None if no controller answers. `causes`: the root
    causes that the examination of the processes found. `coordination`: the mode. `contradictions`: facts in which the
    brokers contradict each other.
    """

    info: clients.ClusterInfo | None
    topics: Sequence[clients.TopicInfo] | None = ()
    moving: Mapping[TopicPartition, ReplicaAssignment] | None = {}
    faults: Mapping[int, str] = {}
    leaders: Mapping[TopicPartition, clients.Outcome] = {}
    causes: Sequence[root_causes.Cause] = ()
    coordination: str = CONTROLLER
    contradictions: Sequence[str] = ()
    may_list: bool = True
    """False if the client lacks the right to list the reassignments."""


@click.command()
@connection_options
@timeout_option
@json_option
def health(bootstrap: str | None, data: str | None) -> None:
    """Find brokers that do not serve clients, and partitions that are offline or under-replicated.

    Exit code 1 when there is such a broker or partition, when no controller answers, when ZooKeeper does not
    serve, or when a log directory has failed. Each reason names the command that mends it. A partition is offline when
    its leader does not answer, whatever the metadata says; a broker that does not answer counts as out of every ISR.
    """
    local = None if bootstrap else find_cluster(data)
    if local is not None:
        found = run(_examine_local(local, where_option(data)))
    else:
        found = run(_examine_remote(bootstrap or ""))
    show(found, lambda: _print(found))
    fail_unless(found["healthy"])


async def _examine_remote(servers: str) -> dict[str, Any]:
    views = await broker_views.read_views(servers.split(","), connector(), remote.ANSWER_MS)
    if not views:
        return {**diagnose(Observed(None, None, None), ()), "notes": [], "unseen": []}
    addresses = ",".join(view.address for view in views)
    async with clients.Client(
        addresses, connector=connector(), api_timeout_ms=remote.ANSWER_MS
    ) as client:
        sights, unseen, may_list = await _look(remote.RemoteCluster(client, views, servers))
        if sights is not None:
            mode = sights.coordination
        else:
            mode = await broker_views.coordination_of(client.admin, views[0].info)
        causes = root_causes.causes_of(sights) if sights else []
        faults = {cause.broker: "" for cause in causes if cause.broker and cause.name in _AWAY}
        seen = await observe(client.admin, faults, view=broker_views.newest(views))
    conflicts = list(broker_views.contradictions(views, mode))
    notes = [*broker_views.differing_lists(views)]
    known = named_brokers(seen.topics or ())
    if sights is not None:
        known |= sights.brokers.keys()
        doubtful, wrong = clock_notes(sights.answers)
        conflicts += wrong + unreachable_addresses(sights.answers, faults)
        notes += [*doubtful, *certificate_notes(sights.answers, SystemClock().wall_ms())]
    seen = seen._replace(
        coordination=mode, contradictions=conflicts, causes=causes, may_list=may_list
    )
    return {**diagnose(seen, known), "notes": notes, "unseen": unseen}


async def _look(cluster: remote.RemoteCluster) -> tuple[sight.Sights | None, list[str], bool]:
    """Return what the brokers tell of themselves, what could not be seen, and whether the client has the right to it.

    The first is None if no broker tells anything.
    """
    try:
        sights = await cluster.sights()
    except KafkaError as error:
        unseen = f"what only the brokers know of themselves: {error.detail}"
        return None, [unseen], not remote.is_denied(error)
    return sights, cluster.unseen(sights.brokers.keys()), True


def named_brokers(topics: Iterable[clients.TopicInfo]) -> set[int]:
    """Return the brokers in the replica lists, whether they are alive or not."""
    partitions = (partition for topic in topics for partition in topic.partitions.values())
    return {replica for partition in partitions for replica in partition.replicas}


async def _examine_local(local: clusters.LocalCluster, where: str) -> dict[str, Any]:
    sights = await sight.look(local.directory, SystemClock(), SystemRng())
    causes = root_causes.causes_of(sights, where)
    faults = {cause.broker: "" for cause in causes if cause.broker and cause.name in _AWAY}
    known = [broker.id for broker in local.record.brokers]
    mode = sights.coordination
    seen = Observed(None, None, None, faults)
    own = _access(local, sights)
    if views := await broker_views.read_views(
        own.servers.split(",") if own.servers else [], own.connector
    ):
        active = cluster_state.active_controller(sights.answers, sights.elected)
        info, topics = broker_views.newest(views)
        if active is not None:
            info = info._replace(controller_id=active)
        is_led = bool(sights.answers) if mode == LEADERS else active is not None
        servers = ",".join(view.address for view in views)
        async with clients.Client(
            servers, connector=own.connector, api_timeout_ms=broker_views.ASK_MS
        ) as client:
            seen = await observe(client.admin, faults, has_controller=is_led, view=(info, topics))
    notes, wrong = clock_notes(sights.answers)
    notes += certificate_notes(sights.answers, SystemClock().wall_ms())
    wrong += unreachable_addresses(sights.answers, faults)
    seen = seen._replace(causes=causes, coordination=mode, contradictions=wrong)
    return {**diagnose(seen, known), "notes": notes, "unseen": []}


def _access(local: clusters.LocalCluster, sights: sight.Sights) -> broker_access.BrokerAccess:
    """Return how to connect to the brokers that answer: by `--command-config`, else as brokers do."""
    answering = [
        local.record.broker(id_)
        for id_, seen in sights.brokers.items()
        if seen.answer is not None or seen.answers_clients
    ]
    if command_config_file() is not None:
        servers = ",".join(local.record.address(broker.id) for broker in answering)
        return broker_access.BrokerAccess(servers, connector())
    return broker_access.inter_broker_access(local.directory, answering, SystemRng())


async def observe(
    admin: clients.Admin,
    faults: Mapping[int, str],
    *,
    view: tuple[clients.ClusterInfo, Sequence[clients.TopicInfo]],
    has_controller: bool = True,
) -> Observed:
    """Return the state of the cluster. `faults`: the reason why a broker does not serve clients, by broker id.

    `view`: the metadata that counts.

    Each broker that is not in `faults` gets a client request for the end offsets of the partitions that it leads.
    `has_controller`: False if it is known that no broker is the active controller.
    """
    info, topics = view
    brokers, leaders = await admin.probe(info, topics, info.brokers.keys() - faults.keys())
    silent = {
        id_: f"does not answer clients: {outcome.reason}"
        for id_, outcome in brokers.items()
        if not outcome.ok
    }
    found = {**silent, **faults}
    is_asked = has_controller and info.controller_id in info.brokers.keys() - found.keys()
    moving = await _moving(admin) if is_asked else None
    return Observed(info, topics, moving, found, leaders)


async def _moving(admin: clients.Admin) -> Mapping[TopicPartition, ReplicaAssignment] | None:
    try:
        async with asyncio.timeout(broker_views.ASK_MS / 1000):
            return await admin.list_reassignments()
    except (KafkaError, TimeoutError):
        return None


def diagnose(seen: Observed, known: Iterable[int]) -> dict[str, Any]:
    """Return the JSON object of `cluster health`. `known`: ids of all brokers of the cluster, up or down.

    A replica that a reassignment is still adding does not make its partition under-replicated.
    """
    if seen.info is None or seen.topics is None:
        return _nothing_known(seen, known)
    away = dict.fromkeys(set(known) - seen.info.brokers.keys(), "is not registered")
    away.update(seen.faults)
    moving = seen.moving or {}
    is_leaders = seen.coordination == LEADERS
    offline: dict[TopicPartition, str] = {}
    under_replicated, not_preferred = [], []
    for topic in seen.topics:
        for number, partition in sorted(topic.partitions.items()):
            tp = TopicPartition(topic.name, number)
            adding = moving[tp].adding if tp in moving else ()
            if reason := _why_offline(seen, away, tp, partition.leader):
                offline[tp] = reason
            if set(partition.replicas) - set(adding) - (set(partition.isr) - away.keys()):
                under_replicated.append(tp)
            if partition.replicas and partition.leader != partition.replicas[0]:
                not_preferred.append(tp)
    reasons = [*seen.contradictions, *_cluster_reasons(seen, away), *_grouped(offline)]
    if under_replicated:
        verb = "has" if len(under_replicated) == 1 else "have"
        reasons.append(
            f"{listed(under_replicated, LISTED_MAX)} {verb} replicas that are not in sync"
        )
    return {
        "healthy": not reasons,
        "reasons": reasons,
        "causes": [cause.as_json() for cause in seen.causes],
        "coordination": seen.coordination,
        "controller": None if _has_no_controller(seen) or is_leaders else seen.info.controller_id,
        "brokers_away": sorted(away),
        "offline_partitions": _names(offline),
        "under_replicated_partitions": _names(under_replicated),
        "not_led_by_preferred": _names(not_preferred),
        "reassignments": None if seen.moving is None else len(seen.moving),
    }


def _nothing_known(seen: Observed, known: Iterable[int]) -> dict[str, Any]:
    """Return the JSON object if no broker answers: then the state of the partitions is not known."""
    unknown = ("offline_partitions", "under_replicated_partitions", "not_led_by_preferred")
    return {
        "healthy": False,
        "reasons": [*_cluster_reasons(seen, dict.fromkeys(seen.faults, "")), _NO_ANSWER],
        "causes": [cause.as_json() for cause in seen.causes],
        "coordination": seen.coordination,
        "controller": None,
        "brokers_away": sorted(known),
        **dict.fromkeys(unknown),
        "reassignments": None,
    }


_NO_ANSWER: Final = "no broker answers, so the state of the partitions is not known"


def _cluster_reasons(seen: Observed, away: Mapping[int, str]) -> Iterator[str]:
    """Yield the root causes, then the brokers that are away without a known cause, then a missing controller."""
    explained = {cause.broker for cause in seen.causes}
    yield from (cause.sentence for cause in seen.causes)
    yield from (f"broker {id_} {why}" for id_, why in sorted(away.items()) if id_ not in explained)
    is_explained = any(cause.name == "no-controller" for cause in seen.causes)
    if seen.info is not None and _has_no_controller(seen) and not is_explained:
        is_leaders = seen.coordination == LEADERS
        yield "no broker lists the reassignments" if is_leaders else "no controller answers"


def _has_no_controller(seen: Observed) -> bool:
    """True if nobody answered the question for the reassignments, which the controller answers."""
    return seen.moving is None and seen.may_list


def _why_offline(
    seen: Observed, away: Mapping[int, str], tp: TopicPartition, leader: int
) -> str | None:
    """Return why clients cannot use a partition; None if clients can use it."""
    if leader < 0:
        return "no leader"
    if leader in away:
        return f"no answer from the leader, broker {leader}"
    outcome = seen.leaders.get(tp)
    if outcome is None or outcome.ok:
        return None
    return f"{outcome.code.name} from the leader, broker {leader}: {outcome.reason}"


def _names(partitions: Iterable[TopicPartition]) -> list[str]:
    """Return the names of partitions, those of users' topics first."""
    return [str(tp) for tp in sorted(partitions, key=lambda tp: (is_internal(tp.topic), tp))]


def _grouped(offline: Mapping[TopicPartition, str]) -> Iterator[str]:
    """Yield one sentence for each reason, with the partitions that are offline for this reason."""
    for reason in dict.fromkeys(offline.values()):
        partitions = [tp for tp, other in offline.items() if other == reason]
        yield f"clients cannot use {listed(partitions, LISTED_MAX)}: {reason}"


def _print(found: Mapping[str, Any]) -> None:
    echo("healthy" if found["healthy"] else "not healthy")
    for reason in found["reasons"]:
        echo(f"  - {reason}")
    for note in found.get("notes", ()):
        echo(f"  note: {note}")
    for sentence in found.get("unseen", ()):
        echo(f"  not seen: {sentence}")
    if found["coordination"] == LEADERS:
        echo("  coordination: leaders (the cluster has no controller)")
    for name, value in found.items():
        if name == "controller" and found["coordination"] == LEADERS:
            continue
        if name not in ("healthy", "reasons", "causes", "notes", "unseen", "coordination"):
            text = _counted(value) if isinstance(value, list) else _or_unknown(name, value)
            echo(f"  {name.replace('_', ' ')}: {text}")


def _counted(values: Sequence[int | str]) -> str:
    """Return a text with the number of brokers or partitions, and with their ids or names."""
    if not values:
        return "0"
    partitions = [_partition(value) for value in values if isinstance(value, str)]
    names = listed(partitions, LISTED_MAX) if partitions else ", ".join(map(str, values))
    return f"{len(values)} ({names})"


def _partition(name: str) -> TopicPartition:
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number))


def _or_unknown(name: str, value: object) -> str:
    if value is None:
        return "none" if name == "controller" else "not known"
    return str(value)


WARN_MS: Final = 10_000
"""Difference from which a clock is named; the brokers log the same differences."""
WRONG_MS: Final = 3_600_000
"""Difference from which a cluster is not healthy: the default of `message.timestamp.after.max.ms`."""
_HARM: Final = (
    "it may refuse records (message.timestamp.after.max.ms) or delete them early (retention.ms)"
)


def clock_notes(answers: Mapping[int, Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return a sentence for each broker whose clock is far from the median of all clocks: notes, then reasons.

    `answers`: the brokers' answers to the call `state`, by broker id. Of two clocks, the one that is behind counts
    as right.
    """
    measured = {id_: {id_: 0, **_offsets(answer)} for id_, answer in answers.items()}
    clocks = max(measured.values(), key=len, default={})
    notes: list[str] = []
    reasons: list[str] = []
    middle = median_low(clocks.values()) if clocks else 0
    for id_, ahead in sorted(clocks.items()):
        distance = abs(ahead - middle)
        side = "ahead of" if ahead > middle else "behind"
        text = (
            f"the clock of broker {id_} is {distance / 1000:.1f} s {side} the clocks of the others"
        )
        if distance >= WRONG_MS:
            reasons.append(f"{text}, so {_HARM}; set it")
        elif distance >= WARN_MS:
            notes.append(f"{text}; set it")
    return notes, reasons


def _offsets(answer: Mapping[str, Any]) -> dict[int, int]:
    return {int(id_): offset for id_, offset in answer["clock_offsets_ms"].items()}


def unreachable_addresses(
    answers: Mapping[int, Mapping[str, Any]], away: Container[int]
) -> list[str]:
    """Return a sentence for each advertised address that brokers have tried and cannot reach.

    `answers`: the brokers' answers to the call `state`, by broker id. `away`: the brokers that do not serve.
    """
    failures: dict[tuple[int, str], dict[int, str]] = {}
    for id_, answer in answers.items():
        for row in answer.get("unreachable", ()):
            failures.setdefault((row["broker"], row["address"]), {})[id_] = row["reason"]
    found = []
    for (broker, address), reasons in sorted(failures.items()):
        if broker in away:
            continue
        blind = sorted(reasons)
        is_all = len(blind) == len(answers.keys() - {broker})
        names = ", ".join(map(str, blind))
        who = "no other broker reaches" if is_all else f"broker {names} cannot reach"
        text = f"{who} {address} of broker {broker} ({reasons[blind[0]]})"
        found.append(f"{text}: correct advertised.listeners of broker {broker}, or the network")
    return found
