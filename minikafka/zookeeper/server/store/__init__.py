"""The data directory of a ZooKeeper server, in Apache ZooKeeper's formats: its log, its snapshots, and recovery."""
