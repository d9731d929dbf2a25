"""One broker: its connections, replicas, fetchers, metadata and controller, connected to each other."""
