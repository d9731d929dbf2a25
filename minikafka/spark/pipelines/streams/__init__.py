"""Streams: how they run, their checkpoints, and the tables and topics that they write."""
