"""The start of a cluster: the plan of its ids, ports and keys, and its processes."""
