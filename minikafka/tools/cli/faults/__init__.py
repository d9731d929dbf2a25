"""`minikafka faults`: harm the disks, connections and sessions of a running cluster, and run fault scripts.

Each command has the name and the arguments of a method of LocalCluster (`docs/faults.md`).
"""

from __future__ import annotations

from typing import Final

import click

from minikafka.tools.cli.terminal.command_group import Entry, LazyGroup

_COMMANDS: Final = {
    "cut": Entry("connections", "Let nothing pass between two brokers, or others."),
    "cut-clients": Entry("connections", "Cut a broker off from all clients."),
    "delay": Entry("connections", "Let all bytes between two arrive later."),
    "drop": Entry("connections", "Lose all bytes between two."),
    "reset": Entry("connections", "Break the open connections between two."),
    "fill-disk": Entry("disks", "Fill the log directories of a broker."),
    "slow-sync": Entry("disks", "Let each fsync of a broker take longer."),
    "fail-sync": Entry("disks", "Let each fsync of a broker fail."),
    "expire-session": Entry("sessions", "End the ZooKeeper session of a broker."),
    "lose-coordinator": Entry("sessions", "Kill the coordinator of a group or transactional id."),
    "hold": Entry("steps", "Let brokers block at a named step."),
    "held": Entry("steps", "Wait until a broker blocks at a step, and print its id."),
    "release": Entry("steps", "Let the brokers that block at a step continue."),
    "after": Entry("steps", "Wait for a number of requests of an API."),
    "heal": Entry("lasting", "End faults of connections and disks."),
    "list": Entry("lasting", "Show the faults in effect, and what they have hit."),
    "run": Entry("run", "Run a fault script."),
}


@click.group(cls=LazyGroup, table=_COMMANDS, package=__name__)
def faults() -> None:
    """Harm a running cluster that was started with `minikafka up --faults`."""
