"""The capabilities that a coordination mode gives to a broker, one module each.

A broker takes part in its cluster only through these protocol classes, and a mode (`broker/modes/`) implements them.
`mode.py` is the entry: it joins a cluster and returns one object per capability. `membership.py` registers the broker,
`roles.py` gives its replicas their roles, `metadata.py` is asked for newer metadata, `stores.py` has the stored state,
`administration.py` has the requests of administrators, and `diagnostics.py` has the state that people see. Invariant:
no other part of the broker asks which mode is in use.
"""
