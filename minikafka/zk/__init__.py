"""The client of ZooKeeper: session, protocol, znode layout, and a managed server."""
