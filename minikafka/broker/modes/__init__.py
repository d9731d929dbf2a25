"""The coordination modes: how a broker takes part in its cluster."""
