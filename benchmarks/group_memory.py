"""Measures the memory of the group coordinator: bytes per group, per member and per committed offset.

    python -m benchmarks.group_memory

The benchmark passes JoinGroup, SyncGroup and OffsetCommit requests to the coordinator, and counts the
allocated bytes with tracemalloc. The metadata and the assignment of each member are like those of a consumer of
one topic with a name of eleven characters.
"""

from __future__ import annotations

import gc
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

from minikafka.base.config import BrokerConfig
from minikafka.base.coordinators import Append, LeadershipBegun, LoadFinished
from minikafka.broker.coordinators.group_host import settings_of
from minikafka.deciders.decider import Answer, Outcome, TimerDue
from minikafka.deciders.groups.coordinator import GroupCoordinator
from minikafka.deciders.groups.events import (
    CommitRequest,
    Event,
    JoinRequest,
    OffsetToCommit,
    SyncRequest,
)

TOPIC = "some-topic0"
MEMBERS = 1_000
GROUPS = 1_000
OFFSETS = 50_000


class Bench:
    """A group coordinator with one offsets partition, whose appends succeed immediately."""

    def __init__(self) -> None:
        self.ids = 0
        self.now = 0
        settings = settings_of(BrokerConfig(group_initial_rebalance_delay_ms=1))
        self.coordinator = GroupCoordinator(settings, self.new_id, lambda: 1_700_000_000_000, 1)
        self.answers: dict[Any, Any] = {}
        self.handle(LeadershipBegun(0, 0))
        self.handle(LoadFinished(0, 0, 1))

    def new_id(self) -> str:
        """Return a new id with the length of a UUID."""
        self.ids += 1
        return f"{self.ids:036}"

    def handle(self, event: Event) -> None:
        """Pass an event to the coordinator, acknowledge each append, and store each response in `answers`."""
        for command in self.coordinator.handle(event, self.now):
            if isinstance(command, Append):
                self.handle(Outcome(command.token, 0))
            elif isinstance(command, Answer):
                self.answers[command.caller] = command.response

    def fill(self, group: str, members: int) -> None:
        """Create a group with this number of members, in the state Stable."""
        name = TOPIC.encode()
        metadata = struct.pack(">hih", 1, 1, len(name)) + name + struct.pack(">ii", -1, 0)
        assignment = struct.pack(">hih", 1, 1, len(name)) + name + struct.pack(">iii", 1, 0, -1)
        for number in range(members):
            self.handle(
                JoinRequest(
                    group,
                    "",
                    None,
                    f"consumer-{number}",
                    "/127.0.0.1",
                    session_timeout_ms=1_800_000,
                    rebalance_timeout_ms=1_800_000,
                    protocol_type="consumer",
                    protocols=[
                        ("range", bytes(bytearray(metadata))),
                        ("cooperative-sticky", bytes(bytearray(metadata))),
                    ],
                    caller=number,
                )
            )
        while len(self.answers) < members:  # the first rebalance waits for more members
            self.now += 1
            self.handle(TimerDue())
        joined = self.coordinator.context.groups[group]
        assignments = [(id_, bytes(bytearray(assignment))) for id_ in joined.members]
        self.handle(
            SyncRequest(
                group,
                joined.generation,
                joined.leader or "",
                assignments=assignments,
                caller="sync",
            )
        )
        self.answers.clear()

    def fill_groups(self) -> None:
        """Create `GROUPS` groups with one member each."""
        for number in range(GROUPS):
            self.fill(f"group-{number}", 1)

    def commit_all(self) -> None:
        """Commit `OFFSETS` offsets, in requests for 100 partitions each."""
        for first in range(0, OFFSETS, 100):
            self.commit("simple", first, 100)

    def commit(self, group: str, first: int, count: int) -> None:
        """Commit offsets for `count` partitions, starting at partition `first`."""
        offsets = [OffsetToCommit(first + number, 1_000_000 + number) for number in range(count)]
        self.handle(CommitRequest(group, -1, "", None, [(TOPIC, offsets)], caller="commit"))
        self.answers.clear()


def grown(work: Callable[[], None]) -> int:
    """Return the number of bytes that `work` allocates and does not free."""
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    work()
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before


def main() -> None:
    """Print the bytes per group, per member and per committed offset."""
    tracemalloc.start()
    bench = Bench()
    groups = grown(bench.fill_groups)
    members = grown(lambda: bench.fill("large", MEMBERS))
    offsets = grown(bench.commit_all)
    print(f"a group of one member: {groups / GROUPS:,.0f} bytes")
    print(f"a further member: {members / MEMBERS:,.0f} bytes")
    print(f"a committed offset: {offsets / OFFSETS:,.0f} bytes")


if __name__ == "__main__":
    main()
