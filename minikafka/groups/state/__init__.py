"""The data of the coordinator: groups with their members, committed offsets, timers and memory."""
