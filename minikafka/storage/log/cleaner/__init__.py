"""Compaction of a log (Kafka's LogCleaner): find the dirty part, choose the records that stay, copy them."""
