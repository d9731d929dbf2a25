"""Reading and writing of Kafka's znodes. Each module handles its own nodes, which no other module uses.

`zookeeper/nodes/layout.py` defines the paths, and the JSON, which only these modules encode and decode. A function that
calls ZooKeeper has a parameter for the session, or for a `NodeReader` (the part of a session that reading needs).
"""
