"""Compaction of a log: what is dirty, what stays, and the copies without what goes (Kafka's LogCleaner)."""
