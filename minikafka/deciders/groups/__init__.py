"""The coordinator of consumer groups (classic protocol) as a pure state machine: events in, commands out.

`broker/host.py` runs this state machine.
"""
