"""The production side of the ports: clock, chance, tasks, files and sockets of this machine."""
