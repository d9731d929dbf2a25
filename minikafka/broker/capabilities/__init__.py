"""The capabilities that a coordination mode gives to a broker, one module each.

A broker takes part in its cluster only through these protocol classes, and a mode (`broker/modes/`) implements them.
`mode.py` is the entry: it joins a cluster and returns one object per capability. `membership.py` registers the broker,
`stores.py` has the stored state, `administration.py` the requests of administrators, and `diagnostics.py` the state
that people see. Invariant: a capability never asks which mode is in use.
"""
