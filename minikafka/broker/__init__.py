"""One broker: its connections, replicas, fetchers, metadata and controller, wired together."""
