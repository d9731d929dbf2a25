"""What a broker stores: the logs of its replicas, and the replication of a partition's log between brokers."""
