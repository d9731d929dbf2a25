"""Production implementations of the ports: clock, randomness, tasks, files and sockets of this machine."""
