"""The controller's decisions as a pure state machine: events in, effects out.

The package does no I/O; `broker.modes.controller.terms` runs the state machine.
"""
