"""The rows of a topic: options, planned offsets, fetching."""
