"""The controller's decisions as a pure state machine: events in, commands out.

The package does no I/O; `broker.modes.controller.terms` runs the state machine.
"""
