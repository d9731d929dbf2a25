"""Checks of what clients and brokers did: histories of clients compared with the logs of all replicas."""
