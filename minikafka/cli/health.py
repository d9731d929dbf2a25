"""`cluster health`: find what is wrong with a cluster.

Metadata alone is not sufficient: a broker that was killed or paused stays in the metadata until its session
expires. So a client request is sent to every broker and every leader. Without `--bootstrap`, the processes of
the cluster are checked too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from minikafka.base.model import ReplicaAssignment, TopicPartition
from minikafka.cli.execution import fail_unless, run_with_client
from minikafka.cli.find_cluster import bootstrap_servers, find_cluster
from minikafka.cli.options import bootstrap_option, data_option, json_option, timeout_option

if TYPE_CHECKING:
    from minikafka.client import Client, ClusterInfo, Outcome, TopicInfo
    from minikafka.client.admin import Admin
    from minikafka.cluster.local import LocalCluster
    from minikafka.cluster.processes import ProcessId

LISTED_MAX: Final = 10
"""Maximum number of partitions in one line of the output."""
DOWN: Final = "is down: it has no process"
PAUSED: Final = "is paused (SIGSTOP)"


class Observed(NamedTuple):
    """The state of a cluster. `faults`: by broker id, the reason why the broker does not serve clients.

    `leaders`: by partition, the outcome of a client request to the leader. `moving`: reassignments in
    progress. `zookeeper`: why ZooKeeper cannot serve brokers; "" if it can, or if this is unknown.
    """

    info: ClusterInfo
    topics: Sequence[TopicInfo] = ()
    moving: Mapping[TopicPartition, ReplicaAssignment] = {}
    faults: Mapping[int, str] = {}
    leaders: Mapping[TopicPartition, Outcome] = {}
    zookeeper: str = ""


@click.command(short_help="Find what is down, offline or under-replicated.")
@bootstrap_option
@data_option
@timeout_option
@json_option
def health(bootstrap: str | None, data: str | None, as_json: bool) -> None:
    """Find brokers that do not serve clients, and partitions that are offline or under-replicated.

    Exit code 1 when there is such a broker or partition, when no controller answers, or when ZooKeeper does
    not run. A partition is offline when its leader does not answer, whatever the metadata says; a broker that
    does not answer counts as out of every ISR.
    """
    local = None if bootstrap else find_cluster(data)
    faults = process_faults(local) if local else {}
    zookeeper = zookeeper_fault(local) if local else ""
    servers, known = bootstrap_servers(bootstrap, data), []
    if local:
        known = [broker.id for broker in local.record.brokers]
        servers = ",".join(local.record.address(id_) for id_ in known if id_ not in faults)

    async def work(client: Client) -> dict[str, Any]:
        seen = await observe(client.admin, faults)
        return diagnose(seen._replace(zookeeper=zookeeper), known)

    found = (
        run_with_client(work, servers) if servers else _nothing_answers(faults, zookeeper, known)
    )
    if as_json:
        click.echo(json.dumps(found))
    else:
        _print(found)
    fail_unless(found["healthy"])


def process_faults(local: LocalCluster) -> dict[int, str]:
    """Return by broker id why a broker cannot serve clients, for each broker that is down or paused."""
    faults = {}
    for broker in local.record.brokers:
        if fault := _fault_of(local.process(broker.id)):
            faults[broker.id] = fault
    return faults


def zookeeper_fault(local: LocalCluster) -> str:
    """Return why the managed ZooKeeper cannot serve brokers; "" if it can, or if ZooKeeper is not managed."""
    fault = _fault_of(local.zookeeper_process()) if local.record.managed else ""
    return f"ZooKeeper {fault}; nothing can be elected, created or changed" if fault else ""


def _fault_of(process: ProcessId | None) -> str:
    from minikafka.cluster.processes import is_paused

    if process is None:
        return DOWN
    return PAUSED if is_paused(process) else ""


def _nothing_answers(
    faults: Mapping[int, str], zookeeper: str, known: Iterable[int]
) -> dict[str, Any]:
    from minikafka.client import ClusterInfo

    seen = Observed(ClusterInfo(None, -1, {}), faults=faults, zookeeper=zookeeper)
    return diagnose(seen, known)


async def observe(admin: Admin, faults: Mapping[int, str]) -> Observed:
    """Return the state of the cluster. `faults`: the reason why a broker does not serve clients, by broker id.

    Each broker that is not in `faults` gets a client request for the end offsets of the partitions that it leads.
    """
    info, topics = await admin.describe()
    brokers, leaders = await admin.probe(info, topics, info.brokers.keys() - faults.keys())
    silent = {
        id_: f"does not answer clients: {outcome.reason}"
        for id_, outcome in brokers.items()
        if not outcome.ok
    }
    found = {**silent, **faults}
    has_controller = info.controller_id in info.brokers.keys() - found.keys()
    moving = await admin.list_reassignments() if has_controller else {}
    return Observed(info, topics, moving, found, leaders)


def diagnose(seen: Observed, known: Iterable[int]) -> dict[str, Any]:
    """Return the JSON object of `cluster health`. `known`: ids of all brokers of the cluster, up or down.

    A replica that a reassignment is still adding does not make its partition under-replicated.
    """
    away = dict.fromkeys(set(known) - seen.info.brokers.keys(), "is not registered")
    away.update(seen.faults)
    offline: dict[str, str] = {}
    under_replicated, not_preferred = [], []
    for topic in seen.topics:
        for number, partition in sorted(topic.partitions.items()):
            tp = TopicPartition(topic.name, number)
            adding = seen.moving[tp].adding if tp in seen.moving else ()
            if reason := _why_offline(seen, away, tp, partition.leader):
                offline[str(tp)] = reason
            if set(partition.replicas) - set(adding) - (set(partition.isr) - away.keys()):
                under_replicated.append(str(tp))
            if partition.replicas and partition.leader != partition.replicas[0]:
                not_preferred.append(str(tp))
    has_controller = seen.info.controller_id in seen.info.brokers.keys() - away.keys()
    reasons = [f"broker {id_} {why}" for id_, why in sorted(away.items())]
    reasons += [seen.zookeeper] if seen.zookeeper else []
    reasons += [] if has_controller else ["no controller answers"]
    reasons += _grouped(offline)
    if under_replicated:
        verb = "has" if len(under_replicated) == 1 else "have"
        reasons.append(f"{_listed(under_replicated)} {verb} replicas that are not in sync")
    return {
        "healthy": not reasons,
        "reasons": reasons,
        "controller": seen.info.controller_id if has_controller else None,
        "brokers_away": sorted(away),
        "offline_partitions": list(offline),
        "under_replicated_partitions": under_replicated,
        "not_led_by_preferred": not_preferred,
        "reassignments": len(seen.moving),
    }


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
    return f"{outcome.code.name} from the leader, broker {leader}"


def _grouped(offline: Mapping[str, str]) -> Iterator[str]:
    """Yield one sentence for each reason, with the partitions that are offline for this reason."""
    for reason in dict.fromkeys(offline.values()):
        names = [name for name, other in offline.items() if other == reason]
        yield f"clients cannot use {_listed(names)}: {reason}"


def _print(found: Mapping[str, Any]) -> None:
    click.echo("healthy" if found["healthy"] else "not healthy")
    for reason in found["reasons"]:
        click.echo(f"  - {reason}")
    for name, value in found.items():
        if name not in ("healthy", "reasons"):
            text = _counted(value) if isinstance(value, list) else _or_none(value)
            click.echo(f"  {name.replace('_', ' ')}: {text}")


def _counted(values: Sequence[object]) -> str:
    return f"{len(values)} ({_listed(values)})" if values else "0"


def _listed(values: Sequence[object]) -> str:
    more = f" and {len(values) - LISTED_MAX} more" if len(values) > LISTED_MAX else ""
    return ", ".join(map(str, values[:LISTED_MAX])) + more


def _or_none(value: object) -> str:
    return "none" if value is None else str(value)
