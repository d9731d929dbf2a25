"""What people see of a term: the summary for `minikafka status`, and the state of a partition for `minikafka why`."""

from __future__ import annotations

from typing import Any, Final

from minikafka.base.model import TopicPartition
from minikafka.broker.modes.controller.terms.term import Term
from minikafka.deciders.controller.context import Context
from minikafka.deciders.controller.states import ReplicaStatus

_STATE_CHANGES_MAX: Final = 20
_REPLICAS_MAX: Final = 100
_NOT_DELETED_YET: Final = (
    ReplicaStatus.OFFLINE,
    ReplicaStatus.DELETION_STARTED,
    ReplicaStatus.DELETION_INELIGIBLE,
)


def summary_of(term: Term) -> dict[str, Any]:
    """Return the controller's state, the cluster's counts, and the deletions and reassignments in progress."""
    context = term.machine.context
    to_delete = context.replicas_to_delete()
    return {
        "state": term.state,
        "queue_size": term.queue_size,
        "backlog": {str(id_): count for id_, count in term.backlog().items()},
        "brokers": {str(id_): broker.epoch for id_, broker in context.brokers.items()},
        "shutting_down": sorted(context.shutting_down),
        "suspects": sorted(context.suspects),
        "suspicions": context.suspicions,
        "false_suspicions": context.false_suspicions,
        "topics_marked_for_deletion": sorted(context.deletions),
        "topics_ineligible_for_deletion": dict(context.ineligible),
        "reassignments": [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(context.assignments[tp].replicas),
                "adding_replicas": list(context.assignments[tp].adding),
                "removing_replicas": list(context.assignments[tp].removing),
            }
            for tp in context.reassigning
        ],
        "offline_partition_count": len(context.unavailable),
        "preferred_replica_imbalance_count": term.machine.preferred_imbalance_count(),
        "unclean_elections": context.unclean_elections,
        "unclean_elections_of": {
            str(tp): count for tp, count in context.unclean_elections_of.items()
        },
        "topic_count": len(context.topics),
        "partition_count": len(context.assignments),
        "replicas_to_delete": len(to_delete),
        "replicas_ineligible_for_deletion": to_delete.count(ReplicaStatus.DELETION_INELIGIBLE),
    }


def view_of(term: Term, tp: TopicPartition) -> dict[str, Any]:
    """Return the state of the controller and of the partition, in types that JSON can represent."""
    context = term.machine.context
    return {
        "broker": context.controller_id,
        "epoch": context.epoch,
        "state": term.state,
        "queue_size": term.queue_size,
        "live_brokers": sorted(context.brokers),
        "shutting_down": sorted(context.shutting_down),
        "topic_known": tp.topic in context.topics,
        "partition": _partition(context, tp) if tp in context.assignments else None,
        "deletion": _deletion(context, tp.topic) if tp.topic in context.deletions else None,
        "state_changes": term.machine.state_changes(tp)[-_STATE_CHANGES_MAX:],
    }


def _partition(context: Context, tp: TopicPartition) -> dict[str, Any]:
    assignment, state = context.assignments[tp], context.leadership.get(tp)
    lost = [broker for broker, tps in context.offline_directories.items() if tp in tps]
    return {
        "status": context.partition_status(tp).value,
        "replicas": list(assignment.replicas),
        "adding": list(assignment.adding),
        "removing": list(assignment.removing),
        "reassigning": tp in context.reassigning,
        "replica_states": {
            str(broker): context.replica_status(tp, broker).value for broker in assignment.replicas
        },
        "lost_directories": sorted(lost),
        "leader": state.leader if state else None,
        "leader_epoch": state.leader_epoch if state else None,
        "isr": list(state.isr) if state else [],
        "zk_version": state.state_version if state else None,
    }


def _deletion(context: Context, topic: str) -> dict[str, Any]:
    """Return the state of the topic's deletion.

    `waits_for`: the reason why the deletion waits, None if there is none. `replicas`: at most `_REPLICAS_MAX` replicas
    that are not deleted yet, each as [broker, partition, state]. `reassigning`: the partitions being reassigned.
    """
    left = [
        [broker, tp.partition, status.value]
        for tp in context.topics.get(topic, ())
        for broker in context.replicas(tp)
        if (status := context.replica_status(tp, broker)) in _NOT_DELETED_YET
    ]
    return {
        "waits_for": context.ineligible.get(topic),
        "replicas": left[:_REPLICAS_MAX],
        "reassigning": [
            tp.partition for tp in context.topics.get(topic, ()) if tp in context.reassigning
        ],
    }
