"""The state of a ZooKeeper server: tree, watches and sessions, without clock, sockets or files.

`state.py` is the entrance. A rule with the mark [measured] was found by a comparison with Apache ZooKeeper 3.9.5.
"""
