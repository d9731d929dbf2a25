"""The client of ZooKeeper, Kafka's znodes, and a ZooKeeper server, with the processes that run one."""
