"""A ZooKeeper server: client connections, group commit, expiry of sessions, snapshots and four-letter words."""
