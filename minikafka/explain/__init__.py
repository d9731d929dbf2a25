"""Why things are as they are: the history of a partition, and what stands in the way of it."""
