"""The controller's decisions as a pure state machine: events in, effects out.

`broker.zk_controller` runs it.
"""
