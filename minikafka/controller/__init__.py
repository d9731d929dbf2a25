"""What the cluster should be: events go in, effects come out. Pure; `broker.controller` runs it."""
