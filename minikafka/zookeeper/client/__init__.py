"""The client of ZooKeeper: connections, sessions and calls."""
