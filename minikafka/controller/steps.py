"""The named steps of the controller's operations: where a test, or a curious person, can hold or kill it.

The machine announces a step before it does what the step says. The letters of a reassignment are those
of KIP-455, in brackets the stage of the KAFKA-42 mail that it stands for (K4). Invariant: the names are
part of the ledger and of the gate's interface, and are not changed.
"""

from __future__ import annotations

from typing import Final

CREATION: Final = "creation"
REASSIGNMENT: Final = "reassignment"
DELETION: Final = "deletion"
CONTROLLED_SHUTDOWN: Final = "controlled-shutdown"

STEPS: Final[dict[str, dict[str, str]]] = {
    CREATION: {
        "partitions-new": "the partitions become New: their assignment was read",
        "replicas-new": "the replicas become New",
        "partitions-online": "leaders are chosen and the state nodes created",
        "replicas-online": "the replicas become Online; brokers have been told",
    },
    REASSIGNMENT: {
        "U3": "stop replicas that a superseded reassignment was adding, before it is superseded",
        "U1": "write the assignment with adding and removing replicas to ZooKeeper",
        "U2": "take it over in memory, and watch the ISR (stage 1)",
        "A1": "raise the leader epoch and tell all replicas, old and new",
        "A2": "start the adding replicas (stage 2); then wait for the ISR (stage 3)",
        "B1": "all target replicas are in sync: they become Online",
        "B2": "the target replicas are the assignment, in memory",
        "B3": "elect a leader among them if need be, and raise the leader epoch (stage 4)",
        "B4": "the removed replicas leave the ISR and stop (stage 5)",
        "B5": "the removed replicas are deleted (stage 5)",
        "B6": "write the final assignment to ZooKeeper (stage 6)",
        "B7": "take the partition out of /admin/reassign_partitions (stage 7)",
        "B8": "tell every broker",
    },
    DELETION: {
        "queued": "the topic is queued for deletion",
        "partitions-gone": "partitions become Offline and NonExistent, clients are told leader -2",
        "replicas-offline": "the replicas become Offline",
        "deletion-started": "live brokers are told to delete their replicas",
        "deletion-successful": "a broker has deleted its replicas",
        "replicas-gone": "all replicas are deleted and become NonExistent",
        "topic-gone": "the topic's nodes are deleted, then its settings, then the mark",
    },
    CONTROLLED_SHUTDOWN: {
        "marked": "the broker counts as shutting down",
        "leaders-moved": "leaderships are moved to other replicas in sync",
        "followers-stopped": "its other replicas leave the ISR and stop",
        "answered": "the broker is told what it still leads",
    },
}
"""Operation -> step -> what the controller does when it goes on from there, in the order of the steps."""
