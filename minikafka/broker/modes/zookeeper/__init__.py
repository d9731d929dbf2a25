"""The parts that coordination modes over ZooKeeper share: sessions, registrations and settings.

What differs between the modes is an argument: the parent of the registrations, and `ConfigWrites`, the fence of
written settings.
"""
