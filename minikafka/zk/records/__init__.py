"""The bytes of ZooKeeper's records: requests and replies of its protocol, transactions of its log, snapshots."""
