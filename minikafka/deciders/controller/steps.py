"""The named steps of the controller's operations.

A test or a user can hold or kill the controller at a step. The controller announces a step before it
performs the step. The steps of a reassignment (`U1`, `A1`, …) are named as in KIP-455. In the
description of such a step, `(stage N)` is the stage of the KAFKA-42 proposal that the step covers (K4).
Invariant: the names never change, because the ledger and the step gate use them.
"""

from __future__ import annotations

from typing import Final

CREATION: Final = "creation"
REASSIGNMENT: Final = "reassignment"
DELETION: Final = "deletion"
CONTROLLED_SHUTDOWN: Final = "controlled-shutdown"

STEPS: Final[dict[str, dict[str, str]]] = {
    CREATION: {
        "partitions-new": "move the partitions to New: their assignment was read",
        "replicas-new": "move the replicas to New",
        "partitions-online": "choose leaders and create the state nodes",
        "replicas-online": "move the replicas to Online; the requests to brokers are queued",
    },
    REASSIGNMENT: {
        "U3": "stop replicas that the reassignment being replaced was adding",
        "U1": "write the assignment with adding and removing replicas to ZooKeeper",
        "U2": "keep the assignment in memory and watch the ISR (stage 1)",
        "A1": "raise the leader epoch and inform all replicas, old and new",
        "A2": "start the adding replicas (stage 2), then wait for the ISR (stage 3)",
        "B1": "move the target replicas, which are all in sync, to Online",
        "B2": "make the target replicas the assignment in memory",
        "B3": "elect a leader among the targets if needed, and raise the leader epoch (stage 4)",
        "B4": "remove the old replicas from the ISR and stop them (stage 5)",
        "B5": "delete the old replicas (stage 5)",
        "B6": "write the final assignment to ZooKeeper (stage 6)",
        "B7": "remove the partition from /admin/reassign_partitions (stage 7)",
        "B8": "inform every broker",
    },
    DELETION: {
        "queued": "queue the topic for deletion",
        "partitions-gone": "move partitions to Offline and NonExistent; clients receive leader -2",
        "replicas-offline": "move the replicas to Offline",
        "deletion-started": "tell live brokers to delete their replicas",
        "deletion-successful": "record that a broker has deleted its replicas",
        "replicas-gone": "move the replicas, which are all deleted, to NonExistent",
        "topic-gone": "delete the topic's nodes, its settings and its deletion mark",
    },
    CONTROLLED_SHUTDOWN: {
        "marked": "treat the broker as shutting down",
        "leaders-moved": "move leaderships to other replicas in sync",
        "followers-stopped": "remove the broker's other replicas from the ISR and stop them",
        "answered": "answer which partitions the broker still leads",
    },
}
"""Operation -> step -> description of the step, in the order of the steps."""
