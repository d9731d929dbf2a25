"""The decisions of one broker in the leader-coordinated mode: pure, without asyncio, clock or I/O.

In this mode there is no controller. Each partition is decided by its leader, and each broker acts only on what is
addressed to it: the nodes of the partitions that it hosts, and its own queue of state-change requests. `machine.py` is
the entry: events in, commands out. `broker/modes/leaders/` reads ZooKeeper, passes what it read as events, and carries
out the commands. The rows C1 to C42 of docs/conformance.md are the statements of the design.
"""
