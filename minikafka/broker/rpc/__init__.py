"""Controller RPC: signed msgpack bodies over HTTP, one ordered channel per broker."""
