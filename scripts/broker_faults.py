"""The faults of one broker that the scripts draw: verbs of fault scripts, which end by a start or a resume."""

from __future__ import annotations

KINDS = ("kill", "pause", "stop")
SECONDS = (0.5, 10.0)
"""Range of the duration of a fault. Some faults are longer than the broker's ZooKeeper session timeout."""
