"""The coordinator of consumer groups (classic protocol) as a pure state machine: events in, commands out.

`broker.group_coordinator` runs this state machine.
"""
