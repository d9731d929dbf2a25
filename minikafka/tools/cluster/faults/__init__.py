"""Faults that a test causes in a cluster on this machine."""
