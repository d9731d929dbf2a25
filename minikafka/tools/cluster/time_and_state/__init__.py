"""Snapshots of a whole cluster, and what only time would do: compaction, retention, expiry, a later clock."""
