"""Rebuilding ZooKeeper's nodes from the log directories of all brokers, after ZooKeeper's data were lost."""
