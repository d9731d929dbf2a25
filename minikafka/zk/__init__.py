"""The Coordination port over ZooKeeper: session, protocol, znode layout, and a managed server."""
