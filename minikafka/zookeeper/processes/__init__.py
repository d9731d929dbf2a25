"""ZooKeeper servers as child processes: Apache ZooKeeper from its jars, and minikafka's own server."""
