"""Kafka's znodes, one module per concern: each reads and writes its own nodes, which no other module names.

The paths and the JSON are in `zk/layout.py`, which only these modules import. A function that
calls ZooKeeper takes the session to use, or only a `NodeReader`, the part of a session that reading needs.
"""
