"""A ZooKeeper server: connections, group commit, expiry of sessions and four-letter words over `zk.core`."""
