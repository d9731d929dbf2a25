"""ZooKeeper behind the Coordination port: session, codec, znode layout and a managed server."""
