"""The commands that run one broker or one ZooKeeper server in the foreground, and that prepare its files."""
