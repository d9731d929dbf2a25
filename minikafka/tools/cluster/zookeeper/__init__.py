"""What commands do with a cluster's ZooKeeper: sessions, lost data, brokers and reassignments in it."""
