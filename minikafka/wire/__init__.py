"""Kafka's protocol bytes: framing, the hot requests by hand, everything else through kio."""
