"""ZooKeeper behind the Coordination port: session, protocol, znode layout and a managed server."""
