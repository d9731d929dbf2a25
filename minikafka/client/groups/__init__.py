"""Consumer groups of the client: members that share partitions, committed offsets, administration."""
