"""The Kafka listeners and client connections: sockets, receive buffers, unsent responses, and the limits of both."""
