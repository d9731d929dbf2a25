"""Kafka's znodes, one module per concern: each reads and writes its own nodes, and nobody else names them.

The paths and the JSON are in `zk/layout.py`, which only these modules import. Every function takes the
session to use; `NodeReader` is the part of it that reading needs.
"""
